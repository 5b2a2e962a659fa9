"""Who computes in the next step: every session that decodes, then one prefill chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.policy import Policy
from engine.session import Session


@dataclass(frozen=True, slots=True)
class Prefill:
    """The next `count` pending tokens of a session, and after them `guess`: tokens that may turn out to be next."""

    session: Session
    count: int
    guess: tuple[int, ...] = ()

    @property
    def tokens(self) -> list[int]:
        """The token ids to compute."""
        return [*self.session.pending[: self.count], *self.guess]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step's work: `decode` sessions compute their one pending token each; `prefill` is at most one chunk."""

    decode: list[Session]
    prefill: Prefill | None

    @property
    def sessions(self) -> list[Session]:
        """Every session that computes in this step."""
        return [*self.decode, self.prefill.session] if self.prefill else self.decode

    @property
    def tokens(self) -> int:
        """Tokens computed in this step."""
        return len(self.decode) + (len(self.prefill.tokens) if self.prefill else 0)

    def guessing(self, session: Session, guess: Sequence[int]) -> Schedule:
        """The same step, with the next token of `session` computed together with a guess of those after it.

        Only where no prompt is read in this step, and never to the last slot of the page, which would make it full and
        have it packed: a wrong guess is then nothing but slots that are written again (rollback of at most a page).
        """
        shape = session.shape
        room = max(0, shape.page_size - 2 - shape.offset(session.position))
        if session.position < shape.sinks or self.prefill is not None or not guess[:room]:
            return self
        others = [decoding for decoding in self.decode if decoding is not session]
        return Schedule(others, Prefill(session, 1, tuple(guess[:room])))


def schedule(sessions: Sequence[Session], chunk_tokens: int) -> Schedule:
    """Plan a step for sessions that wait for tokens, in order of arrival.

    Decode goes first, so that a long prompt slows a running answer by one chunk at most (Sarathi, arXiv 2308.16369).
    """
    decode = [session for session in sessions if len(session.pending) == 1]
    waiting = next((session for session in sessions if len(session.pending) > 1), None)
    return Schedule(decode, Prefill(waiting, chunk_length(waiting, chunk_tokens)) if waiting else None)


def chunk_length(session: Session, chunk_tokens: int) -> int:
    """Tokens of the next chunk: up to the end of the sinks, else up to a page's end, and never more than the ring.

    Ending at page ends keeps chunks the same whatever came before. A chunk that came round to the page it began in
    would write over tokens of it before that page, full by then, could be known.
    """
    waiting, shape = len(session.pending), session.shape
    if session.position < shape.sinks:
        return min(waiting, chunk_tokens, shape.sinks - session.position)
    if session.policy is Policy.SCORED:  # what is recycled is decided, and kept, where a page ends
        return min(waiting, chunk_tokens, shape.page_size - shape.offset(session.position))
    limit = min(chunk_tokens, shape.ring_tokens - shape.offset(session.position))
    if waiting <= limit:
        return waiting
    past_edge = (session.position + limit - shape.sinks) % shape.page_size
    return limit - past_edge if past_edge < limit else limit
