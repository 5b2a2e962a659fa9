"""One answer being written: prompt progress, sampling, text, and why it ends."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum, auto

from torch import Tensor

from engine.events import AnswerFinished, EngineEvent, FinishReason, TextDelta
from engine.sampling import SamplingParams, sample
from engine.session import Session
from engine.text.detokenizer import Detokenizer
from engine.text.stop import StopStrings
from engine.types import MessageKey


class Priority(Enum):
    """Whose answer goes first."""

    FOREGROUND = auto()
    BACKGROUND = auto()


@dataclass(slots=True)
class Answer:
    """The running answer of a session. `key` names the message being written."""

    session: Session
    key: MessageKey
    params: SamplingParams
    detokenizer: Detokenizer
    stop_ids: frozenset[int]
    prompt_tokens: int
    priority: Priority = Priority.FOREGROUND
    stops: StopStrings = field(init=False)
    text: list[str] = field(default_factory=list)
    new_tokens: int = 0
    cancelled: bool = False
    began: float = field(default_factory=time.perf_counter)
    first_token_at: float | None = None

    def __post_init__(self) -> None:
        self.stops = StopStrings(self.params.stop)

    @property
    def prompt_left(self) -> int:
        """Prompt tokens that are not computed yet."""
        return 0 if self.new_tokens else len(self.session.pending)

    def moved_to(self, session: Session) -> None:
        """The chat was swapped out and is back; what it computes again counts as prompt until the first new token."""
        if not self.new_tokens:
            self.prompt_tokens += len(session.pending) - len(self.session.pending)
        self.session = session

    def take(self, logits: Tensor) -> list[EngineEvent]:
        """Draw the next token from `logits` `[vocab]`; appends it to the session unless it ends the answer."""
        if self.first_token_at is None:
            self.first_token_at = time.perf_counter()
        token = sample(logits, self.params, self.session.position)
        if token in self.stop_ids:
            return self.finish(FinishReason.STOP)
        self.session.append(self.key, [token])
        self.new_tokens += 1
        events = self._show(self.stops.push(self.detokenizer.push(token)))
        if self.stops.matched:
            return events + self.finish(FinishReason.STOP)
        if self.new_tokens >= self.params.max_tokens:
            return events + self.finish(FinishReason.LENGTH)
        return events

    def finish(self, reason: FinishReason) -> list[EngineEvent]:
        """Flush what was held back and report the end."""
        events = self._show(self.stops.push(self.detokenizer.flush()) + self.stops.flush())
        now = time.perf_counter()
        first = self.first_token_at or now
        finished = AnswerFinished(
            self.session.id,
            reason,
            "".join(self.text),
            self.prompt_tokens - self.prompt_left,
            self.new_tokens,
            first - self.began,
            now - first,
        )
        return [*events, finished]

    def _show(self, text: str) -> list[EngineEvent]:
        if not text:
            return []
        self.text.append(text)
        return [TextDelta(self.session.id, text)]
