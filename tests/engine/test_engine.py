from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, EngineEvent, FinishReason, PromptRead, TextDelta
from engine.sampling.params import SamplingParams
from engine.text.template import ChatTemplate
from engine.types import EngineError, MessageKey, QuotaError, SessionId
from tests.engine.helpers import one_sentence
from tests.engine.templates import STYLES
from tests.engine.tiny import Tiny

Q, A = MessageKey("q"), MessageKey("a")


def run(engine: Engine) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
    return events


def finished(events: list[EngineEvent]) -> AnswerFinished:
    assert isinstance(events[-1], AnswerFinished)
    return events[-1]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"quota_tokens": 95}, QuotaError),
        ({"quota_tokens": 512, "page_size": 0}, EngineError),
        ({"quota_tokens": 512, "sessions": 0}, EngineError),
        ({"quota_tokens": 512, "chunk_tokens": 0}, EngineError),
    ],
)
def test_wrong_sizes_are_refused(wrong: dict[str, Any], error: type[EngineError]) -> None:
    with pytest.raises(error) as refused:
        EngineConfig(**wrong)
    one_sentence(refused.value)


def test_a_cancel_acts_before_the_next_token(tiny: Tiny) -> None:
    engine = Engine(replace(tiny.ours, stop_ids=frozenset()), EngineConfig(quota_tokens=128, chunk_tokens=8))
    session = engine.open_session("s")
    engine.add_user(session, Q, "hello there, how are you today")
    engine.generate(session, A, SamplingParams(max_tokens=50))
    engine.step()
    engine.cancel(session)
    in_prompt = finished(engine.step())
    assert in_prompt.reason is FinishReason.CANCELLED
    assert (in_prompt.text, in_prompt.new_tokens) == ("", 0)
    assert 0 < in_prompt.prompt_tokens < 40

    engine.generate(session, MessageKey("b"), SamplingParams(max_tokens=50))
    events: list[EngineEvent] = []
    while not any(isinstance(event, TextDelta) for event in events):
        events += engine.step()
    engine.cancel(session)
    last = engine.step()
    text = "".join(event.text for event in [*events, *last] if isinstance(event, TextDelta))
    assert finished(last).text == text
    assert finished(last).new_tokens < 50
    assert not engine.busy
    assert engine.step() == []


def test_a_thousand_cancels_leave_nothing_behind(tiny: Tiny) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=96, sessions=2))
    for number in range(1000):
        session = engine.open_session("s")
        engine.add_user(session, Q, "x")
        engine.generate(session, A, SamplingParams())
        if number % 10 == 0:
            engine.step()
        engine.cancel(session)
        if number % 3:
            assert finished(engine.step()).reason is FinishReason.CANCELLED
        engine.close_session(session)
        engine.check()
    assert len(engine.cache.pool.free) == engine.cache.pool.total
    assert not engine.busy


def test_the_prompt_reports_its_progress(tiny: Tiny) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=256, chunk_tokens=16))
    session = engine.open_session("be brief")
    engine.add_user(session, Q, "word " * 20)
    engine.generate(session, A, SamplingParams(max_tokens=3))
    events = run(engine)
    read = [event for event in events if isinstance(event, PromptRead)]
    assert [event.done for event in read] == sorted({event.done for event in read})
    assert read[-1].done == read[-1].total == finished(events).prompt_tokens
    assert len(read) > 5


def test_an_answer_cut_off_inside_a_character_ends(tiny: Tiny) -> None:
    emoji = list("👍".encode())
    fast = tiny.ours.tokenizer
    ids = fast.encode_plain("👍")
    assert len(ids) == len(emoji) == 4
    engine = Engine(replace(tiny.ours, stop_ids=frozenset()), EngineConfig(quota_tokens=128))
    session = engine.open_session("s")
    engine.add_answer(session, Q, "ok")
    engine.generate(session, A, SamplingParams(max_tokens=3))
    answer = engine._chats[session].answer
    assert answer is not None
    for token in ids[:2]:
        assert answer.detokenizer.push(token) == ""
    done = finished(run(engine))
    assert done.reason is FinishReason.LENGTH
    assert done.new_tokens == 3


def test_nothing_to_answer_is_refused(tiny: Tiny) -> None:
    style = STYLES["llama2"]
    template = ChatTemplate(style.source, bos="<|im_start|>", eos="")
    engine = Engine(replace(tiny.ours, template=template, stop_ids=frozenset()), EngineConfig(quota_tokens=256))
    session = engine.open_session("s")
    engine.add_user(session, Q, "hello")
    engine.generate(session, A, SamplingParams(max_tokens=2))
    assert finished(run(engine)).new_tokens == 2
    chat = engine._chats[session]
    while len(chat.session.pending):  # as after an answer whose end the template leaves out
        chat.session.pending.pop()
    with pytest.raises(EngineError) as refused:
        engine.generate(session, MessageKey("b"), SamplingParams())
    assert "nothing to answer" in one_sentence(refused.value)
    assert not engine.busy


def test_an_unknown_session_is_refused(tiny: Tiny) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=128))
    with pytest.raises(EngineError) as refused:
        engine.window(SessionId(9))
    assert "9" in one_sentence(refused.value)


def test_a_quota_is_said_in_tokens_and_bytes(tiny: Tiny) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=200, page_size=16, sessions=2))
    window = engine.window(engine.open_session("s"))
    assert window.quota_tokens == 192
    assert window.quota_bytes * 2 == engine.pages.bytes == engine.pages.k.numel() * 2 * 2
    assert (window.position, window.visible_tokens, window.evicted) == (0, 0, 0)
    assert engine.count_tokens("日本") == 6


def test_what_will_be_whole_is_known_before_the_question_is_read(tiny: Tiny) -> None:
    """`whole_messages` names exactly the messages that are in the window in full when the answer begins."""
    engine = Engine(replace(tiny.ours, stop_ids=frozenset()), EngineConfig(quota_tokens=256, page_size=16))
    session = engine.open_session("s")
    told = []
    for turn in range(14):
        text = "word " * (3 + 7 * (turn % 5))
        asked, answered = MessageKey(f"u{turn}"), MessageKey(f"a{turn}")
        template_tokens = len("|user\n") + len("|\n") + len("|assistant\n")  # | stands for a special token
        whole = engine.whole_messages(session, template_tokens + len(text))
        engine.add_user(session, asked, text)
        engine.generate(session, answered, SamplingParams(max_tokens=1))
        run(engine)
        window = engine.window(session)
        visible = {m.key for m in window.messages if m.key in told and m.visible == m.total}
        assert visible == set(whole)
        told += [asked, answered]
    assert len(set(told) - visible) > 4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_guessing_changes_the_steps_and_not_the_text(tiny: Tiny, temperature: float) -> None:
    """A chat that repeats itself, over several windows: fewer passes, the same tokens."""
    model = replace(tiny.ours, stop_ids=frozenset())
    told, steps = [], []
    for guess_tokens in (0, 5):
        config = EngineConfig(quota_tokens=96, page_size=16, sessions=2, guess_tokens=guess_tokens)
        engine = Engine(model, config)
        session = engine.open_session("s")
        engine.add_user(session, Q, "again and again and again and again and ")
        two_letters = tuple((token, 50.0) for token in engine.model.tokenizer.encode_plain("ab"))
        params = SamplingParams(temperature=temperature, logit_bias=two_letters, max_tokens=300, end_loops=False)
        engine.generate(session, A, params)
        taken, events = 0, []
        while engine.busy:
            events += engine.step()
            engine.check()
            taken += 1
        told.append(finished(events).text)
        steps.append(taken)
        assert finished(events).new_tokens == 300
        assert engine.window(session).evicted > 200
    assert told[0] == told[1]
    assert steps[1] < steps[0]
