"""A session with what the engine knows about it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from engine.answer import Answer, Priority
from engine.policy import Policy
from engine.reading import Reading
from engine.sampling.params import SamplingParams
from engine.session import Session
from engine.truncate import answer_room, kept_from
from engine.types import Position, QuotaError


@dataclass(slots=True)
class Chat:
    """`users` are the ends of its user messages."""

    session: Session
    users: list[Position] = field(default_factory=list)
    answer: Answer | None = None
    reading: Reading | None = None
    tokens_per_second: float = 0.0

    @property
    def priority(self) -> Priority | None:
        """Of its answer or its reading; None when it is idle."""
        work = self.answer or self.reading
        return None if work is None else work.priority

    def user_starts(self) -> frozenset[Position]:
        """Where its user messages begin."""
        ends = frozenset(self.users)
        return frozenset(span.first for span in self.session.messages if span.end in ends)

    def floor_for(self, opening: int, max_tokens: int) -> Position:
        """What the window begins with when an answer of up to `max_tokens` begins with `opening` tokens.

        Raises QuotaError when the policy is to truncate and the newest message alone leaves no room for an answer.
        """
        session = self.session
        if session.policy is not Policy.TRUNCATE:
            return session.floor
        shape, room = session.shape, answer_room(session.shape, max_tokens)
        firsts = [span.first for span in session.messages]
        floor = kept_from(shape, session.floor, session.end + opening + room, firsts, self.user_starts())
        if floor is None:
            newest = session.end + opening - (firsts[-1] if firsts else shape.sinks)
            raise QuotaError(
                f"the newest message takes {newest} tokens and an answer {room} more; beside the system prompt the "
                f"window has {shape.ring_tokens}: shorten it, allow a larger window or another policy than truncate"
            )
        return floor

    def fitting(self, params: SamplingParams) -> SamplingParams:
        """The same, for an answer that ends where the window is full if the policy is to truncate."""
        session = self.session
        if session.policy is not Policy.TRUNCATE:
            return params
        room = session.shape.full_at(session.floor) - session.end
        return replace(params, max_tokens=min(params.max_tokens, room))

    def measure(self) -> None:
        """Note how fast its answer is being written."""
        answer = self.answer
        if answer is not None and answer.first_token_at is not None and answer.new_tokens > 1:
            taken = time.perf_counter() - answer.first_token_at
            self.tokens_per_second = (answer.new_tokens - 1) / max(1e-9, taken)
