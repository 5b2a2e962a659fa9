"""How an answer is sampled: every number and text that a caller may set, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from engine.types import EngineError


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is one JSON value that this schema (JSON text) describes."""

    text: str


@dataclass(frozen=True, slots=True)
class Regex:
    """The whole answer matches this regular expression (Rust's syntax: no look-around, no back-references)."""

    pattern: str


Constraint = JsonSchema | Regex


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """One answer's settings; the order in which they act is told in `engine.sampling.sampler`.

    temperature: 0 is greedy.
    top_k, top_p, min_p: 0, 1 and 0 switch these filters off.
    repetition_penalty (1 is off), presence_penalty, frequency_penalty (0 is off): see `engine.sampling.penalties`.
        They look at the last `penalty_tokens` tokens of the chat, prompt and answers alike, whatever is visible.
    logit_bias: (token id, what is added to its logit).
    stop: strings that end the answer and are not part of it.
    banned: strings that never appear in the answer, in any letter case.
    end_loops: an answer that repeats itself is ended, see `engine.text.loops`.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
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

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0, 10)
        if self.top_k < 0:
            raise EngineError(f"top_k is {self.top_k}; it must be 0 (off) or more")
        if not 0 < self.top_p <= 1:
            raise EngineError(f"top_p is {self.top_p}; it must be above 0 and at most 1 (off)")
        if not 0 <= self.min_p < 1:
            raise EngineError(f"min_p is {self.min_p}; it must be 0 (off) or more and below 1")
        _within("repetition_penalty", self.repetition_penalty, 0.1, 10)
        _within("presence_penalty", self.presence_penalty, -2, 2)
        _within("frequency_penalty", self.frequency_penalty, -2, 2)
        if self.penalty_tokens < 1:
            raise EngineError(f"penalty_tokens is {self.penalty_tokens}; it must be at least 1")
        if self.max_tokens < 1:
            raise EngineError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        for token, bias in self.logit_bias:
            if token < 0 or not -100 <= bias <= 100:
                raise EngineError(
                    f"logit_bias holds {token}={bias}; it must be token ids from 0 with a number between -100 and 100"
                )
        if "" in self.banned:
            raise EngineError("banned holds an empty string, which every text contains; leave it out")

    def check_vocabulary(self, vocab: int) -> None:
        """Raises EngineError when a token to bias is none of the model's `vocab` tokens."""
        for token, _ in self.logit_bias:
            if token >= vocab:
                raise EngineError(f"logit_bias names token {token}; this model has {vocab} tokens")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise EngineError(f"{name} is {value}; it must lie between {low} and {high}")
