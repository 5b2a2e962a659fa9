"""Pinned messages are sinks like the system prompt; a reading is an answer's prompt without the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer import Priority
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, EngineEvent, PromptRead, TokensEvicted
from engine.model.load import LoadedModel
from engine.sampling.params import SamplingParams
from engine.sinks import PinnedMessage, Role
from engine.text.template import ChatTemplate
from engine.types import EngineError, MessageKey, QuotaError, SessionId
from tests.engine.helpers import one_sentence, poison
from tests.engine.reference import reference_logits
from tests.engine.templates import STYLES
from tests.engine.tiny import Tiny

Q, A = MessageKey("q"), MessageKey("a")
FACT = PinnedMessage(MessageKey("fact"), Role.USER, "the key is under the mat")
NOTED = PinnedMessage(MessageKey("noted"), Role.ANSWER, "noted: the mat")


def endless(tiny: Tiny) -> LoadedModel:
    return replace(tiny.ours, stop_ids=frozenset())


def tokens(engine: Engine, session: SessionId) -> list[int]:
    s = engine._chats[session].session
    return [*s.past, *s.pending]


def run(engine: Engine) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
        engine.check()
        chats = [chat.session for chat in engine._chats.values() if engine.admitted(chat.session.id)]
        poison(engine.pages, chats, engine.cache.prefix.resident)
    return events


def answered(engine: Engine, session: SessionId, key: str = "a", count: int = 8) -> str:
    engine.generate(session, MessageKey(key), SamplingParams(max_tokens=count))
    last = run(engine)[-1]
    assert isinstance(last, AnswerFinished)
    return last.text


@pytest.mark.parametrize("style", STYLES)
def test_pinned_messages_are_written_as_the_chat_would_write_them(tiny: Tiny, style: str) -> None:
    """The same messages, pinned or said: the same tokens, in every style of template."""
    template = ChatTemplate(STYLES[style].source, bos="<|im_start|>", eos="<|im_end|>")
    engine = Engine(replace(tiny.ours, template=template), EngineConfig(quota_tokens=2048))
    pinned, said = engine.open_session("be brief", [FACT, NOTED]), engine.open_session("be brief")
    engine.add_user(said, FACT.key, FACT.text)
    engine.add_answer(said, NOTED.key, NOTED.text)
    assert tokens(engine, pinned) == tokens(engine, said)
    for session in (pinned, said):
        engine.add_user(session, Q, "where is it?")
    assert tokens(engine, pinned) == tokens(engine, said)


def test_what_is_pinned_stays_while_windows_go_by(tiny: Tiny) -> None:
    """Three windowfuls after it, every token still sees it at its own place, as the dense reference does."""
    engine = Engine(endless(tiny), EngineConfig(quota_tokens=144, page_size=8, chunk_tokens=16))
    session = engine.open_session("s", [FACT, NOTED])
    sinks = len(tokens(engine, session))
    gone: list[str] = []
    starts = []
    for turn in range(10):
        starts.append(len(tokens(engine, session)))
        engine.add_user(session, MessageKey(f"q{turn}"), "tell me more")
        starts.append(len(tokens(engine, session)))
        engine.generate(session, MessageKey(f"a{turn}"), SamplingParams(max_tokens=8))
        gone += [key for event in run(engine) if isinstance(event, TokensEvicted) for key in event.span.messages]
    window = engine.window(session)
    assert window.evicted > 3 * window.ring_tokens
    assert {"q0", "a0"} < set(gone)
    assert set(gone).isdisjoint({FACT.key, NOTED.key})
    assert [(m.key, m.visible, m.pinned) for m in window.messages[:3]] == [
        (None, window.sink_tokens - window.pinned_tokens, False),
        (FACT.key, len(f"<user\n{FACT.text}>\n"), True),
        (NOTED.key, len(f"<assistant\n{NOTED.text}>\n"), True),
    ]
    assert engine.visible_positions(session)[:sinks] == list(range(sinks))
    assert engine.whole_messages(session, 10_000) == (FACT.key, NOTED.key)
    history, shape = tokens(engine, session), engine._chats[session].session.shape
    want = reference_logits(
        tiny.theirs, history, sinks=sinks, page=shape.page_size, ring=shape.ring_pages, message_starts=starts
    )
    written = range(len(history) - 8 - len("|\n"), len(history) - len("|\n"))
    assert [int(want[t - 1].argmax()) for t in written] == history[-10:-2]


@given(size=st.integers(0, 400), system=st.integers(0, 200))
@settings(max_examples=60)
def test_too_much_is_refused_with_the_numbers(tiny: Tiny, size: int, system: int) -> None:
    """Half the quota at most, and never the last two ring pages; nothing is left behind."""
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=256, page_size=16))
    alone, taken = len("<system\n>\n") + system, len("<user\n>\n") + size
    allowed = min(128, 224 - alone)
    pinned = [PinnedMessage(FACT.key, Role.USER, "x" * size)]
    if taken <= allowed:
        window = engine.window(engine.open_session("s" * system, pinned))
        assert (window.pinned_tokens, window.sink_tokens) == (taken, alone + taken)
        assert window.ring_tokens >= 32
        return
    with pytest.raises(QuotaError) as refused:
        engine.open_session("s" * system, pinned)
    sentence = one_sentence(refused.value)
    assert f"takes {taken} tokens" in sentence
    assert f"{allowed} are allowed of a window of 256" in sentence
    assert engine.stats().chats == 0


def test_a_message_is_pinned_or_said_but_not_both(tiny: Tiny) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=256))
    with pytest.raises(EngineError) as refused:
        engine.open_session("s", [FACT, FACT])
    assert "fact is pinned twice" in one_sentence(refused.value)
    session = engine.open_session("s", [FACT])
    before = tokens(engine, session)
    for call in (
        lambda: engine.add_user(session, FACT.key, "again"),
        lambda: engine.generate(session, FACT.key, SamplingParams()),
        lambda: engine.fork(session, FACT.key),
        lambda: engine.rewind(session, FACT.key),
    ):
        with pytest.raises(EngineError) as refused:
            call()
        assert "fact is pinned" in one_sentence(refused.value)
    assert tokens(engine, session) == before
    assert not engine.busy


def test_a_chat_that_goes_back_to_its_beginning_keeps_what_is_pinned(tiny: Tiny) -> None:
    engine = Engine(endless(tiny), EngineConfig(quota_tokens=256, page_size=8, host_bytes=1 << 20))
    session = engine.open_session("s", [FACT])
    sinks = tokens(engine, session)
    engine.add_user(session, Q, "where is it?")
    first = answered(engine, session)
    child = engine.fork(session, None)
    engine.rewind(session, None)
    for chat in (session, child):
        assert tokens(engine, chat) == sinks
        assert engine.window(chat).messages[1].key == FACT.key
        engine.add_user(chat, Q, "where is it?")
        assert answered(engine, chat) == first
        engine.swap_out(chat)
        assert engine.whole_messages(chat, 0)[0] == FACT.key


# --- reading ---


@pytest.mark.parametrize("style", ["chatml", "llama2"])
@given(chunk=st.integers(5, 40), priority=st.sampled_from(Priority), said=st.integers(1, 6))
@settings(max_examples=6)
def test_what_was_read_ahead_is_answered_as_what_was_not(
    tiny: Tiny, style: str, chunk: int, priority: Priority, said: int
) -> None:
    """Also where the template has nothing to write before an answer (Llama 2): a token is left to answer from."""
    template = ChatTemplate(STYLES[style].source, bos="<|im_start|>", eos="<|im_end|>")
    model = replace(endless(tiny), template=template)
    config = EngineConfig(quota_tokens=192, page_size=8, sessions=2, chunk_tokens=chunk)
    texts = []
    for ahead in (False, True):
        engine = Engine(model, config)
        session = engine.open_session("s", [FACT])
        for turn in range(said):
            engine.add_user(session, MessageKey(f"q{turn}"), "tell me more of it")
            if turn < said - 1:
                engine.add_answer(session, MessageKey(f"a{turn}"), "no, no, no")
        if ahead:
            waits = len(tokens(engine, session))
            assert engine.read(session, priority)
            read = [event for event in run(engine) if isinstance(event, PromptRead)]
            assert [event.done for event in read] == sorted({event.done for event in read})
            assert {event.total for event in read} == {waits} == {read[-1].done}
            assert engine.unread(session) == 0
            assert not engine.read(session, priority)
            assert not engine.busy
        texts.append(answered(engine, session))
        assert not ahead or engine.stats().computed_tokens < waits + 8 + 8 + len("|assistant\n")
    assert texts[0] == texts[1]


def test_a_reading_in_the_background_waits_for_every_answer_and_ends_by_itself(tiny: Tiny) -> None:
    """With room for one chat: the one that is read makes room for the one that answers, and comes back."""
    for priority in Priority:
        engine = Engine(endless(tiny), EngineConfig(quota_tokens=192, page_size=8, chunk_tokens=8, host_bytes=1 << 20))
        long, short = engine.open_session("s"), engine.open_session("t")
        engine.add_user(long, Q, "x" * 100)
        engine.add_user(short, Q, "y")
        engine.read(long)
        engine.step()
        assert engine.admitted(long)
        engine.generate(short, A, SamplingParams(max_tokens=5), priority)
        order = [event.session for event in run(engine)]
        assert order == sorted(order, reverse=True)
        assert {long, short} == set(order)
        assert engine.unread(long) == 0


def test_what_is_added_while_a_chat_is_read_is_read_as_well(tiny: Tiny) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=192, page_size=8, chunk_tokens=8))
    session = engine.open_session("s", [FACT])
    engine.add_user(session, Q, "x" * 30)
    engine.read(session)
    engine.step()
    engine.add_answer(session, A, "y" * 30)
    events = run(engine)
    assert events[-1] == PromptRead(session, len(tokens(engine, session)), len(tokens(engine, session)))


def test_a_reading_ends_by_an_answer_a_cancel_a_swap_and_a_close(tiny: Tiny) -> None:
    engine = Engine(endless(tiny), EngineConfig(quota_tokens=192, page_size=8, chunk_tokens=8))
    session = engine.open_session("s")
    engine.add_user(session, Q, "x" * 60)
    for end in (engine.cancel, engine.swap_out):
        engine.read(session)
        engine.step()
        assert engine.busy
        end(session)
        assert not engine.busy
        assert engine.step() == []
    engine.read(session)
    engine.step()
    answered(engine, session, count=3)
    assert not engine.busy
    engine.add_user(session, MessageKey("r"), "x" * 60)
    engine.read(session)
    engine.close_session(session)
    assert not engine.busy
    engine.check()


def test_a_model_that_fails_ends_the_reading(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=192, page_size=8))
    session = engine.open_session("s", [FACT])
    engine.read(session)
    with monkeypatch.context() as broken:
        broken.setattr(engine._runner, "run", lambda _: (_ for _ in ()).throw(RuntimeError("no memory")))
        with pytest.raises(RuntimeError):
            engine.step()
    assert not engine.busy
    assert not engine.admitted(session)
    engine.read(session)
    assert isinstance(run(engine)[-1], PromptRead)
