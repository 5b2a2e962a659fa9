"""What the engine tells its caller after each step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.session import EvictedSpan
from engine.types import MessageKey, SessionId


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    LOOP = "loop"
    """It repeated itself, see `engine.text.loops`."""
    BLOCKED = "blocked"
    """The constraint and the banned strings together allowed no further token."""


@dataclass(frozen=True, slots=True)
class PromptRead:
    """`done` of `total` prompt tokens of an answer, or of a reading, are computed; a reading is over when all are."""

    session: SessionId
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New whole characters of the answer."""

    session: SessionId
    text: str


@dataclass(frozen=True, slots=True)
class TokensEvicted:
    """Positions that have just left the window; every lost position is in exactly one such event."""

    session: SessionId
    span: EvictedSpan


@dataclass(frozen=True, slots=True)
class AnswerFinished:
    """The answer is over; `text` is all of it, equal to all deltas joined."""

    session: SessionId
    reason: FinishReason
    text: str
    prompt_tokens: int
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float


EngineEvent = PromptRead | TextDelta | TokensEvicted | AnswerFinished


@dataclass(frozen=True, slots=True)
class VisibleMessage:
    """How many of a message's computed tokens are in the window. `key` None is the system prompt; of that and of
    `pinned` messages, which lie in the sinks as well, `total` counts those that wait to be computed too."""

    key: MessageKey | None
    visible: int
    total: int
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class WindowState:
    """What the model can see in one session, counted in its own tokens.

    `position` counts every token computed so far; `evicted` those that are no longer visible; `pinned_tokens` are those
    of the sinks that are not the system prompt's.
    """

    quota_tokens: int
    sink_tokens: int
    pinned_tokens: int
    ring_tokens: int
    visible_tokens: int
    position: int
    evicted: int
    until_eviction: int
    page_size: int
    quota_bytes: int
    tokens_per_second: float
    messages: tuple[VisibleMessage, ...]
