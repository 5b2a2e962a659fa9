"""What ends an answer, what is taken back in it, and that neither leaves a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, EngineEvent, FinishReason, PromptRead, TextDelta, TokensEvicted
from engine.sampling.params import SamplingParams
from engine.session import Session
from engine.types import MessageKey, Position, SessionId
from tests.engine.tiny import Tiny

Q, A = MessageKey("q"), MessageKey("a")
NEVER = frozenset({256, 257, 258})


def run(engine: Engine) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
    return events


def ask(engine: Engine, session: SessionId, turn: int, params: SamplingParams) -> tuple[AnswerFinished, list[int]]:
    """The end of an answer and its tokens, after checking what was told on the way."""
    engine.add_user(session, MessageKey(f"q{turn}"), "tell me more")
    engine.generate(session, MessageKey(f"a{turn}"), params)
    answer = engine._chats[session].answer
    assert answer is not None
    events = [event for event in run(engine) if event.session == session]
    finished = events[-1]
    assert isinstance(finished, AnswerFinished)
    assert finished.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert finished.new_tokens == len(answer.tokens)
    history = [*engine._chats[session].session.past, *engine._chats[session].session.pending]
    assert history[answer.first : answer.first + len(answer.tokens)] == answer.tokens
    read = [event for event in events if isinstance(event, PromptRead)]
    assert read[-1].done == read[-1].total == finished.prompt_tokens
    engine.check()
    return finished, answer.tokens


def letters(tiny: Tiny, wanted: str, bias: float) -> tuple[tuple[int, float], ...]:
    """A bias under which a random model writes these letters."""
    return tuple((tiny.ours.tokenizer.encode_plain(letter)[0], bias) for letter in wanted)


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0, 1.0]),
    top_k=st.sampled_from([0, 20]),
    seed=st.integers(0, 99),
    max_tokens=st.just(45),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    # Short, so that a random model writes them now and then; what it begins often and completes never is held.
    banned=st.lists(st.sampled_from(["a", "e", "Q", "qz", "\x00", "ab", " ", "the"]), max_size=5).map(tuple),
    stop=st.lists(st.sampled_from(["zz", "x", "\n"]), max_size=2).map(tuple),
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    params=params,
    page_size=st.sampled_from([1, 4, 32]),
    host_bytes=st.sampled_from([0, 1 << 22]),
    guess_tokens=st.sampled_from([0, 4]),
)
def test_an_answer_with_banned_strings_is_as_if_they_never_were(
    tiny: Tiny, params: SamplingParams, page_size: int, host_bytes: int, guess_tokens: int
) -> None:
    config = EngineConfig(quota_tokens=128, page_size=page_size, host_bytes=host_bytes, guess_tokens=guess_tokens)
    engine = Engine(replace(tiny.ours, stop_ids=NEVER), config)
    session = engine.open_session("s")
    for turn in range(3):
        finished, _ = ask(engine, session, turn, params)
        assert not any(string.lower() in finished.text.lower() for string in params.banned)
    # The same tokens, read as an answer given earlier, are followed by the same next answer.
    cold = Engine(replace(tiny.ours, stop_ids=NEVER), EngineConfig(quota_tokens=128, page_size=page_size))
    warm = engine._chats[session].session
    fed = cold._chats[cold.open_session("s")]
    history = [*warm.past, *warm.pending]
    for span in warm.messages:
        fed.session.append(span.key, history[span.first : span.end])
        fed.users.append(span.end)
    greedy = SamplingParams(max_tokens=12)
    engine.generate(session, MessageKey("last"), greedy)
    cold.generate(fed.session.id, MessageKey("last"), greedy)
    assert run(engine)[-1].text == run(cold)[-1].text  # type: ignore[union-attr]


def test_what_was_evicted_is_told_once_though_answers_go_back(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over the edge of a page that had been recycled, which comes back from the host tier."""
    engine = Engine(replace(tiny.ours, stop_ids=NEVER), EngineConfig(128, page_size=4, host_bytes=1 << 22))
    session, backs, go_back = engine.open_session("s"), list[bool](), Engine._go_back

    def watched(engine: Engine, chat: Any, end: Position) -> Session | None:
        shape, last = chat.session.shape, Position(chat.session.position - 1)
        backs.append(shape.page_start(last) != shape.page_start(Position(end - 1)))
        return go_back(engine, chat, end)

    monkeypatch.setattr(Engine, "_go_back", watched)
    lost = engine.window(session).sink_tokens
    banned = ("aba", "cde", "bcd", "abcdef", "gh", "eee", "fa")
    params = SamplingParams(1.0, max_tokens=80, logit_bias=letters(tiny, "abcdefgh", 60.0), banned=banned)
    for turn in range(6):
        engine.add_user(session, MessageKey(f"q{turn}"), "go on")
        engine.generate(session, MessageKey(f"a{turn}"), replace(params, seed=turn))
        for event in run(engine):
            if isinstance(event, TokensEvicted):
                assert event.span.first == lost
                lost = event.span.last + 1
        engine.check()
    assert lost > 400
    assert len(backs) > 5
    assert any(backs)


def test_a_string_of_several_tokens_is_left_where_it_began(tiny: Tiny) -> None:
    """Banning what the model is about to say changes it from that string's first token on and not before."""
    engine = Engine(replace(tiny.ours, stop_ids=NEVER), EngineConfig(quota_tokens=256, page_size=32))
    bias = letters(tiny, "abcdefghijklmnopqrstuvwxyz", 60.0)
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=30, logit_bias=bias)
    free, _ = ask(engine, engine.open_session("s"), 0, params)
    assert len(free.text) == 30
    for first in range(1, 26):
        string = free.text[first : first + 4]
        at = free.text.find(string)
        bent, _ = ask(engine, (session := engine.open_session("s")), 0, replace(params, banned=(string.upper(),)))
        engine.close_session(session)
        assert string not in bent.text
        assert bent.text[:at] == free.text[:at]
        assert bent.text[at] != free.text[at]


def test_an_answer_that_repeats_itself_is_ended_and_says_so(tiny: Tiny) -> None:
    engine = Engine(replace(tiny.ours, stop_ids=NEVER), EngineConfig(quota_tokens=2048))
    params = SamplingParams(max_tokens=500, logit_bias=letters(tiny, "a", 99.0))
    looping, tokens = ask(engine, engine.open_session("s"), 0, params)
    assert (looping.reason, len(tokens), set(looping.text)) == (FinishReason.LOOP, 240, {"a"})
    session = engine.open_session("s")
    assert ask(engine, session, 0, replace(params, end_loops=False))[0].reason is FinishReason.LENGTH
    engine.close_session(session)
    rule, _ = ask(engine, engine.open_session("s"), 0, replace(params, logit_bias=letters(tiny, "-", 99.0)))
    assert rule.reason is FinishReason.LENGTH


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_replay_draws_the_same(tiny: Tiny, temperature: float) -> None:
    """Cold, from known pages, in a fork, beside another chat, in chunks of any size: one seed, one answer."""
    params = SamplingParams(temperature, top_k=30, seed=11, max_tokens=25, repetition_penalty=1.1)

    def told(engine: Engine, session: SessionId) -> str:
        return ask(engine, session, 1, params)[0].text

    def opened(engine: Engine) -> SessionId:
        session = engine.open_session("be brief")
        engine.add_user(session, MessageKey("q0"), "what is it? " * 4)
        engine.add_answer(session, MessageKey("a0"), "nothing of note, " * 3)
        return session

    model = replace(tiny.ours, stop_ids=NEVER)
    engine = Engine(model, EngineConfig(quota_tokens=512, page_size=8, sessions=3))
    first = opened(engine)
    want = told(engine, first)
    assert told(engine, engine.fork(first, MessageKey("a0"))) == want
    assert told(engine, opened(engine)) == want
    engine.rewind(first, MessageKey("a0"))
    assert told(engine, first) == want
    beside = opened(engine)
    engine.add_user(beside, Q, "something else")
    engine.generate(beside, A, SamplingParams(temperature=1.0, seed=5, max_tokens=40))
    engine.rewind(first, MessageKey("a0"))
    assert told(engine, first) == want
    for chunk in (1, 7, 128):
        other = Engine(model, EngineConfig(quota_tokens=512, page_size=8, chunk_tokens=chunk))
        assert told(other, opened(other)) == want
    guessing = Engine(model, EngineConfig(quota_tokens=512, page_size=8, guess_tokens=4))
    assert told(guessing, opened(guessing)) == want
    assert told(engine, first) != want  # another place in the chat is another draw
