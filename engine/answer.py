"""One answer being written: prompt progress, sampling, text, and why it ends."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice

from torch import Tensor

from engine.events import AnswerFinished, EngineEvent, FinishReason, TextDelta
from engine.lookup import PromptLookup
from engine.runner import Ahead, Computed
from engine.sampling.constraint import Matcher
from engine.sampling.params import SamplingParams
from engine.sampling.sampler import Sampler
from engine.sampling.together import Ask, Drawn, draw_together
from engine.session import Session
from engine.text.detokenizer import Detokenizer
from engine.text.held import HeldText
from engine.text.loops import NONE, Repetition, RepetitionFinder
from engine.text.tokenizer import Tokenizer
from engine.types import MessageKey, Position, SessionId

FENCE = "```"


class Priority(Enum):
    """Whose answer goes first."""

    FOREGROUND = auto()
    BACKGROUND = auto()


@dataclass(slots=True)
class Answer:
    """The running answer of a session. `key` names the message being written, `tokens` are those drawn so far,
    from position `first` on.

    go_back: the session without what was computed from a position on; None when that is too far back.
    taken_back: for each index into `tokens`, tokens that began a banned string there.
    """

    session: Session
    key: MessageKey
    params: SamplingParams
    tokenizer: Tokenizer
    stop_ids: frozenset[int]
    prompt_tokens: int
    go_back: Callable[[Position], Session | None]
    priority: Priority = Priority.FOREGROUND
    matcher: Matcher | None = None
    tokens: list[int] = field(default_factory=list)
    taken_back: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    cancelled: bool = False
    began: float = field(default_factory=time.perf_counter)
    first_token_at: float | None = None
    first: Position = field(init=False)
    detokenizer: Detokenizer = field(init=False)
    repetitions: RepetitionFinder = field(init=False)
    text: HeldText = field(init=False)
    sampler: Sampler = field(init=False)
    lookup: PromptLookup = field(default_factory=PromptLookup)

    def __post_init__(self) -> None:
        self.first = self.session.end
        self.detokenizer, self.repetitions = Detokenizer(self.tokenizer), RepetitionFinder()
        self.text = HeldText(self.params.stop, self.params.banned)
        self.sampler = Sampler(self.params, spared=self.stop_ids, matcher=self.matcher)

    @property
    def new_tokens(self) -> int:
        """Tokens of the answer, without the one that ended it."""
        return len(self.tokens)

    @property
    def prompt_left(self) -> int:
        """Prompt tokens that are not computed yet."""
        return 0 if self.first_token_at is not None else self.session.unread

    def moved_to(self, session: Session) -> None:
        """The chat was swapped out and is back; what it computes again counts as prompt until the first new token."""
        if self.first_token_at is None:
            self.prompt_tokens += session.unread - self.session.unread
        self.session = session

    def guess(self, most: int) -> list[int]:
        """Up to `most` tokens that may follow the one that waits to be computed."""
        self.lookup.follow(self.session.past, self.session.pending)
        return self.lookup.guess(most)

    def asks(self, logits: Tensor, ahead: Ahead | None) -> list[Ask]:
        """What `take` will draw from a step's logits: the next token, and after a guess those that follow if it proves
        right. Under a constraint, what may follow is known only then."""
        past, at, t = self.session.past[-self.params.penalty_tokens :], len(self.tokens), self.session.position
        rows = [logits, *(ahead.logits if ahead is not None and self.matcher is None else ())]
        guess = () if ahead is None else ahead.tokens
        return [
            Ask(self.sampler, row, [*past, *guess[:i]], Position(t + i), frozenset(self.taken_back.get(at + i, ())))
            for i, row in enumerate(rows)
        ]

    def take(self, logits: Tensor, drawn: Drawn | None = None) -> list[EngineEvent]:
        """Draw the next token from `logits` `[vocab]`, or take the one that was `drawn` from them; appends it to the
        session unless it ends the answer.

        When it completes a banned string, the answer goes back to where that began and goes on differently.
        """
        if self.first_token_at is None:
            self.first_token_at = time.perf_counter()
        events: list[EngineEvent] = []
        while True:
            at = len(self.tokens)
            if drawn is not None and drawn.taken_back == self.taken_back[at]:
                token = drawn.token
            else:
                token = self.sampler.draw(logits, self.session.past, self.session.position, self.taken_back[at])
            if token is None:
                back = at > self.text.settled and self._take_back(at - 1)
                return events if back else events + self.finish(FinishReason.BLOCKED)
            if token in self.stop_ids:
                return events + self.finish(FinishReason.STOP)
            if self.matcher is not None:
                self.matcher.take(token)
            self.tokens.append(token)
            repetition = self.repetitions.push(token)
            events += self._show(self.text.push(self.detokenizer.push(token)))
            if self.text.banned_from is None:
                break
            # Under a constraint another way may open late: the last token first, those before it when none is left.
            if self._take_back(at if self.matcher is not None else self.text.banned_from):
                return events
        self.session.append(self.key, [token])
        reason = self._ended(repetition)
        return events if reason is None else events + self.finish(reason)

    def _ended(self, repetition: Repetition) -> FinishReason | None:
        if self.text.stopped or (self.matcher is not None and self.matcher.complete):
            return FinishReason.STOP
        if self.params.end_loops and repetition is not NONE:
            code = self.text.tail(len(self.tokens)).count(FENCE) % 2 == 1
            if repetition.is_loop(self.text.tail(repetition.period), code=code):
                return FinishReason.LOOP
        return FinishReason.LENGTH if len(self.tokens) >= self.params.max_tokens else None

    def _take_back(self, keep: int) -> bool:
        """Forget token `keep`, which began a banned string, with all after it, and never draw it there again.

        True when the session went back and computes anew; False when the logits at hand are those for the next draw,
        because the string began with the last token or its beginning is too far back and only its end is taken back.
        """
        computed = len(self.session.past) - self.first
        session = self.go_back(Position(self.first + keep)) if keep < computed else None
        if session is None and computed == len(self.tokens):
            return False
        self.session = session or self.session
        keep = computed if session is None else keep
        self.taken_back = defaultdict(set, {i: tokens for i, tokens in self.taken_back.items() if i <= keep})
        self.taken_back[keep].add(self.tokens[keep])
        if self.matcher is not None:
            self.matcher.take_back(len(self.tokens) - keep)
        self.text.take_back(keep)
        del self.tokens[keep:]
        self.detokenizer, self.repetitions = Detokenizer(self.tokenizer), RepetitionFinder()
        for token in self.tokens:
            self.detokenizer.push(token)
            self.repetitions.push(token)
        return session is not None

    def finish(self, reason: FinishReason) -> list[EngineEvent]:
        """Flush what was held back and report the end."""
        events = self._show(self.text.push(self.detokenizer.flush()) + self.text.flush())
        now = time.perf_counter()
        first = self.first_token_at or now
        finished = AnswerFinished(
            self.session.id,
            reason,
            self.text.shown,
            self.prompt_tokens - self.prompt_left,
            self.new_tokens,
            first - self.began,
            now - first,
        )
        return [*events, finished]

    def _show(self, text: str) -> list[EngineEvent]:
        return [TextDelta(self.session.id, text)] if text else []


def drawn_at_once(done: Sequence[Computed], answers: Sequence[Answer | None]) -> dict[SessionId, list[Drawn]]:
    """What is drawn from a step's logits for each session that has an answer and nothing left to compute; on the
    device, which is waited for once."""
    asks = {
        computed.session.id: answer.asks(computed.logits, computed.ahead)
        for computed, answer in zip(done, answers, strict=True)
        if answer is not None and not computed.session.pending
    }
    drawn = iter(draw_together([ask for each in asks.values() for ask in each]))
    return {session: list(islice(drawn, len(each))) for session, each in asks.items()}
