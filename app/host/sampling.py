"""How an answer is to be sampled and how it ended, as it passes to the engine's child and back. See `app.host.wire`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is one JSON value that this schema (JSON text) describes."""

    text: str


@dataclass(frozen=True, slots=True)
class Regex:
    """The whole answer matches this regular expression."""

    pattern: str


Constraint = JsonSchema | Regex


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. `temperature` 0 is greedy; `top_k` 0, `top_p` 1, `min_p` 0, `repetition_penalty` 1
    and the other penalties 0 switch those off. `banned` strings never appear in the answer."""

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    seed: int | None = None
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_tokens: int = 256
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned: tuple[str, ...] = ()
    constraint: Constraint | None = None
    end_loops: bool = True


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    LOOP = "loop"
    """It repeated itself."""
    BLOCKED = "blocked"
    """What it must match and what it must not say left no next token."""
