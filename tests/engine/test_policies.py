"""What leaves a full window, by policy; each judged by a plain model that is given the text that is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, EngineEvent, FinishReason, TokensEvicted
from engine.policy import Policy
from engine.sampling.params import SamplingParams
from engine.truncate import kept_from
from engine.types import MessageKey, Position, QuotaError, SessionId
from engine.window import WindowShape, page_edge
from tests.engine.helpers import one_sentence, poison
from tests.engine.tiny import Tiny

PAGE = 8


class Logged:
    """An engine of a policy that keeps the logits it draws from, and NaN in everything that nobody may read."""

    def __init__(self, tiny: Tiny, policy: Policy, **config: int) -> None:
        asked = EngineConfig(
            **({"quota_tokens": 96, "page_size": PAGE, "host_bytes": 1 << 22} | config),
            policy=policy,
            kv_format=KvFormat.FULL,
        )
        self.engine = Engine(replace(tiny.ours, stop_ids=frozenset()), asked)
        self.engine.pages.k.fill_(float("nan"))
        self.engine.pages.v.fill_(float("nan"))
        self.logits: dict[tuple[SessionId, int], Tensor] = {}
        self.floors: dict[tuple[SessionId, int], int] = {}
        self.said = 0

    def say(self, session: SessionId, text: str) -> None:
        self.said += 1
        self.engine.add_user(session, MessageKey(f"q{self.said}"), text)

    def answer(self, session: SessionId, most: int = 9) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        engine, run = self.engine, self.engine._runner.run
        engine.generate(session, MessageKey(f"a{self.said}"), SamplingParams(max_tokens=most))
        while engine.busy:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine._runner, "run", lambda schedule: self._noting(run(schedule)))
                events += engine.step()
            poison(engine.pages, self.held(), engine.cache.prefix.resident)
            engine.check()
        return events

    def _noting(self, computed):  # type: ignore[no-untyped-def]
        for one in computed:
            if not one.session.pending:
                at = (one.session.id, one.session.position - 1)
                self.logits[at], self.floors[at] = one.logits, one.session.floor
        return computed

    def held(self):  # type: ignore[no-untyped-def]
        chats = self.engine._chats.values()
        return [chat.session for chat in chats if self.engine.cache.admitted(chat.session)]

    def history(self, session: SessionId) -> list[int]:
        s = self.engine._chats[session].session
        return s.tokens(Position(0), s.end).tolist()


def finish(events: list[EngineEvent]) -> AnswerFinished:
    assert isinstance(events[-1], AnswerFinished)
    return events[-1]


def talk(logged: Logged, turns: int) -> SessionId:
    session = logged.engine.open_session("be brief")
    for number in range(turns):
        logged.say(session, f"question {number} " + "x" * (number * 5 % 17))
        logged.answer(session)
    return session


@pytest.mark.parametrize("policy", [Policy.TRUNCATE, Policy.RECOMPUTE])
def test_nothing_is_left_of_what_was_dropped(tiny: Tiny, policy: Policy) -> None:
    """transformers itself, given the text that is left and no other, says the same after every token."""
    logged = Logged(tiny, policy)
    session = talk(logged, 7)
    tokens, sinks = logged.history(session), logged.engine.window(session).sink_tokens
    assert len(set(logged.floors.values())) > 3
    for (_, t), floor in logged.floors.items():
        with torch.no_grad():
            want = tiny.theirs(torch.tensor([tokens[:sinks] + tokens[floor : t + 1]])).logits[0, -1]
        torch.testing.assert_close(
            logged.logits[session, t], want, atol=1e-4, rtol=1e-4, msg=lambda m, t=t: f"{t}: {m}"
        )


def test_recompute_begins_where_round_robin_does(tiny: Tiny) -> None:
    slid, anew = Logged(tiny, Policy.ROUND_ROBIN), Logged(tiny, Policy.RECOMPUTE, chunk_tokens=17)
    sessions = [talk(logged, 1) for logged in (slid, anew)]
    for logged, session in zip((slid, anew), sessions, strict=True):
        for number in range(6):
            logged.engine.add_answer(session, MessageKey(f"told {number}"), "so it is " * 3)
            logged.say(session, f"again {number}")
    for _ in range(30):
        lengths = [len(logged.history(session)) for logged, session in zip((slid, anew), sessions, strict=True)]
        assert lengths[0] == lengths[1]
        seen = []
        for logged, session in zip((slid, anew), sessions, strict=True):
            logged.answer(session, most=1)
            seen.append(logged.engine.visible_positions(session))
            logged.engine.rewind(session, MessageKey(f"q{logged.said}"))
            logged.say(session, "and")
        assert seen[0] == seen[1]


def test_truncate_drops_whole_messages_before_an_answer_and_none_during_it(tiny: Tiny) -> None:
    """Questions of 15 tokens with their marks and answers as long as there is room; at least 18 of the ring's 72."""
    logged = Logged(tiny, Policy.TRUNCATE)
    session, gone = logged.engine.open_session("be brief"), []
    sinks, ring = len("<system\nbe brief>\n"), 72
    opening = len("<assistant\n")
    for number in range(1, 7):
        whole = logged.engine.whole_messages(session, len("<user\nzzzzzzz>\n") + opening)
        logged.say(session, "zzzzzzz")
        asked = len(logged.history(session))
        events = logged.answer(session, most=50)
        told = [event.span for event in events if isinstance(event, TokensEvicted)]
        gone += [key for span in told for key in span.messages]
        assert all(span.last < asked for span in told)
        window = logged.engine.window(session)
        assert (window.sink_tokens, window.ring_tokens) == (sinks, ring)
        assert [message.key for message in window.messages[1:]] == [*whole, f"q{number}", f"a{number}"]
        in_front = window.evicted % PAGE  # the page that the floor is in holds so many tokens less
        assert finish(events).reason is FinishReason.LENGTH
        assert finish(events).new_tokens == ring - in_front - (asked + opening - sinks - window.evicted) >= 18
        assert window.until_eviction == 1  # room for the last token drawn, which nobody has asked to compute
    assert gone == [f"{who}{number}" for number in range(1, 6) for who in "qa"]


def test_a_message_that_alone_does_not_fit_is_refused_and_nothing_changes(tiny: Tiny) -> None:
    logged = Logged(tiny, Policy.TRUNCATE)
    session = talk(logged, 2)
    logged.say(session, "x" * 70)
    before = logged.engine.window(session)
    with pytest.raises(QuotaError) as refused:
        logged.answer(session)
    text = one_sentence(refused.value)
    assert all(number in text for number in ("89", "9", "72"))
    assert logged.engine.window(session) == before
    assert not logged.engine.busy
    logged.engine.rewind(session, MessageKey("a2"))
    logged.say(session, "x")
    assert finish(logged.answer(session)).new_tokens == 9


def test_truncate_finds_pages_under_the_same_floor_again(tiny: Tiny) -> None:
    logged = Logged(tiny, Policy.TRUNCATE, sessions=2)
    session = talk(logged, 7)
    assert logged.engine.window(session).evicted
    said = {t: logits for (_, t), logits in logged.logits.items()}
    logged.engine.rewind(session, MessageKey("q7"))
    assert logged.engine.unread(session) <= PAGE
    first = len(logged.history(session))
    child = logged.engine.fork(session, MessageKey("q7"))
    for chat in (session, child):
        logged.answer(chat)
        new = {t: logits for (of, t), logits in logged.logits.items() if of == chat and t >= first}
        assert len(new) >= 9
        for t, logits in new.items():
            torch.testing.assert_close(logits, said[t], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("host_bytes", [0, 1 << 22])
def test_scored_pages_are_taken_up_as_they_were(tiny: Tiny, host_bytes: int) -> None:
    """Also those that were recycled since; without images all is computed again, and the same pages go."""
    logged = Logged(tiny, Policy.SCORED, sessions=2, host_bytes=host_bytes)
    session = talk(logged, 9)
    said = {t: logits for (_, t), logits in logged.logits.items()}
    assert logged.engine.window(session).evicted > 96
    for key in ("q9", "q6"):
        logged.engine.rewind(session, MessageKey(key))
        first, child = len(logged.history(session)), logged.engine.fork(session, MessageKey(key))
        for chat in (session, child):
            assert logged.engine.unread(chat) <= PAGE or not host_bytes
            logged.answer(chat)
            new = {t: logits for (of, t), logits in logged.logits.items() if of == chat and t >= first}
            assert len(new) >= 9
            for t in sorted(new)[:9]:
                torch.testing.assert_close(new[t], said[t], atol=1e-4, rtol=1e-4)
        logged.engine.close_session(child)


def test_scored_names_as_whole_what_is_sure_to_stay(tiny: Tiny) -> None:
    logged = Logged(tiny, Policy.SCORED)
    session = logged.engine.open_session("be brief")
    for _ in range(9):
        ahead = len("<user\nzz>\n<assistant\n")
        whole = logged.engine.whole_messages(session, ahead)
        logged.say(session, "zz")
        logged.answer(session, most=1)
        shown = {m.key for m in logged.engine.window(session).messages if m.visible == m.total}
        assert set(whole) <= shown
    assert whole
    assert logged.engine.window(session).evicted > 96


@st.composite
def histories(draw: st.DrawFn) -> tuple[WindowShape, list[Position], Position, int]:
    shape = WindowShape(draw(st.integers(1, 9)), draw(st.integers(1, 20)), draw(st.integers(2, 7)))
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
    firsts = [Position(shape.sinks + sum(lengths[:i])) for i in range(len(lengths))]
    return shape, firsts, draw(st.sampled_from(firsts)), firsts[-1] + lengths[-1]


@given(histories(), st.sets(st.integers(0, 200)))
def test_no_more_is_dropped_than_has_to_be(
    history: tuple[WindowShape, list[Position], Position, int], users: set[int]
) -> None:
    shape, firsts, floor, end = history
    users_at = {first for first in firsts if first in users}
    kept = kept_from(shape, floor, end, firsts, users_at)

    def fits(first: Position) -> bool:
        return page_edge(shape, Position(end - 1)) <= first

    if kept is None:
        assert not fits(firsts[-1])
        return
    assert fits(kept)
    between = [first for first in firsts if floor < first < kept]
    assert kept == floor or not fits(floor)
    assert not any(fits(first) for first in between if first in users_at or kept not in users_at)
