"""Pages that were computed once are found again: by forks, by other chats, after eviction, after a swap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.cache.formats.kv_format import KvFormat
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, TokensEvicted
from engine.model.decoder import Decoder
from engine.policy import Policy
from engine.sampling.params import SamplingParams
from engine.text.template import ChatTemplate
from engine.types import EngineError, MessageKey, SessionId
from tests.engine.helpers import one_sentence, poison
from tests.engine.tiny import Tiny

PAGE = 8
GREEDY = SamplingParams(max_tokens=9)


def engine_of(
    tiny: Tiny,
    *,
    sessions: int = 2,
    host_bytes: int = 1 << 22,
    chunk_tokens: int = 20,
    policy: Policy = Policy.ROUND_ROBIN,
    kv_format: KvFormat = KvFormat.AUTO,
) -> Engine:
    model = replace(tiny.ours, stop_ids=frozenset())
    config = EngineConfig(
        96, PAGE, sessions, chunk_tokens=chunk_tokens, host_bytes=host_bytes, policy=policy, kv_format=kv_format
    )
    engine = Engine(model, config)
    engine.pages.k.fill_(float("nan"))
    engine.pages.v.fill_(float("nan"))
    return engine


def wipe(engine: Engine) -> None:
    held = [chat.session for chat in engine._chats.values() if engine.cache.admitted(chat.session)]
    poison(engine.pages, held, engine.cache.prefix.resident)
    engine.check()


def run(engine: Engine) -> None:
    while engine.busy:
        engine.step()


def answer(engine: Engine, session: SessionId, key: str) -> str:
    engine.generate(session, MessageKey(key), GREEDY)
    text = ""
    while engine.busy:
        for event in engine.step():
            if isinstance(event, AnswerFinished):
                text = event.text
        wipe(engine)
    return text


def turn(engine: Engine, session: SessionId, number: int) -> str:
    engine.add_user(session, MessageKey(f"q{number}"), f"question {number} " + "x" * (number * 5 % 17))
    return answer(engine, session, f"a{number}")


def talk(engine: Engine, turns: int, system: str = "be brief") -> tuple[SessionId, list[str]]:
    session = engine.open_session(system)
    return session, [turn(engine, session, number) for number in range(turns)]


def keys(engine: Engine, session: SessionId) -> torch.Tensor:
    """K of every token in a chat's window, as it lies there."""
    s = engine._chats[session].session
    slots = [s.slot(t) for t in engine.visible_positions(session)]
    return torch.stack([engine.pages.layer(layer)[0][:, slots] for layer in range(engine.model.config.layers)])


def test_every_turn_can_be_forked_for_at_most_a_page(tiny: Tiny) -> None:
    """Also turns that left the window long ago; what follows is what the chat itself said."""
    engine = engine_of(tiny)
    session, said = talk(engine, 9)
    assert engine.window(session).evicted > 2 * 96
    for number in range(9):
        child = engine.fork(session, MessageKey(f"a{number - 1}") if number else None)
        system_only = PAGE if number else engine.window(session).sink_tokens
        assert 1 <= engine.unread(child) <= system_only
        assert turn(engine, child, number) == said[number]
        engine.close_session(child)
    assert turn(engine, session, 9) == talk(engine_of(tiny), 10)[1][9]


def test_the_stats_are_counts(tiny: Tiny) -> None:
    engine = engine_of(tiny)
    session, _ = talk(engine, 5)
    before, position = engine.stats(), engine.window(session).position
    assert (before.chats, before.windows, before.found_tokens) == (1, (engine.window(session),), 0)
    assert before.as_computed == before.pages.total - before.pages.free
    assert before.computed_tokens == position
    assert before.pages.free + before.pages.private + before.pages.shared == before.pages.total == 24
    assert before.known.image_bytes == before.known.images * before.page_bytes
    assert before.known.images == (position - engine.window(session).sink_tokens) // PAGE + 3
    turn(engine, engine.fork(session, MessageKey("a2")), 3)
    after = engine.stats()
    assert after.found_tokens > 0
    history = engine._chats[SessionId(2)].session.position
    assert after.computed_tokens + after.found_tokens == before.computed_tokens + history


def test_packed_pages_are_told_from_those_as_computed(tiny: Tiny) -> None:
    config = EngineConfig(96, PAGE, kv_format=KvFormat.INT8)
    engine = Engine(replace(tiny.ours, stop_ids=frozenset()), config)
    session, _ = talk(engine, 5)
    window, stats = engine.window(session), engine.stats()
    being_written = (window.position - window.sink_tokens) % PAGE > 0
    assert stats.kv_format is KvFormat.INT8
    assert stats.as_computed == -(-window.sink_tokens // PAGE) + being_written
    assert stats.pages.total - stats.pages.free == 96 // PAGE


def test_regenerate_and_edit_compute_at_most_a_page_again(tiny: Tiny) -> None:
    engine = engine_of(tiny, sessions=1)
    session, said = talk(engine, 8)
    for number in (7, 5, 5, 2):
        engine.rewind(session, MessageKey(f"q{number}"))
        assert 1 <= engine.unread(session) <= PAGE
        assert answer(engine, session, f"a{number}") == said[number]
    engine.rewind(session, MessageKey("a1"))
    engine.add_user(session, MessageKey("edited"), "another question")
    edited = answer(engine, session, "b2")
    fresh = engine_of(tiny)
    other, _ = talk(fresh, 2)
    fresh.add_user(other, MessageKey("edited"), "another question")
    assert answer(fresh, other, "b2") == edited


def test_chats_with_the_same_beginning_share_its_pages(tiny: Tiny) -> None:
    engine = engine_of(tiny, host_bytes=0)
    first, said = talk(engine, 2, "a system prompt of some length")
    before = engine.cache.pool.stats()
    second, again = talk(engine, 1, "a system prompt of some length")
    assert again == said[:1]
    assert engine.cache.pool.stats().shared > before.shared == 0
    other, _ = talk(engine_of(tiny, sessions=3), 0)
    assert other
    engine.close_session(first)
    assert engine.cache.pool.stats().shared == 0
    assert turn(engine, second, 1) == said[1]


def test_more_chats_than_room_take_turns_by_copy(tiny: Tiny) -> None:
    """Four chats in the room of two answer in turn as if each were alone."""
    engine = engine_of(tiny, sessions=2)
    systems = ["one", "two", "two", "four"]
    alone = [talk(engine_of(tiny), 5, system)[1] for system in systems]
    chats = [engine.open_session(system) for system in systems]
    for number in range(5):
        for chat, expected in zip(chats, alone, strict=True):
            s = engine._chats[chat].session
            assert s.position - (s.end - engine.unread(chat)) <= PAGE
            assert turn(engine, chat, number) == expected[number]


def test_without_a_host_tier_everything_is_computed_again_and_the_same(tiny: Tiny) -> None:
    engine = engine_of(tiny, sessions=1, host_bytes=0)
    session, said = talk(engine, 6)
    engine.swap_out(session)
    assert engine.cache.prefix.stats().known == 0
    assert engine.unread(session) > 96
    assert turn(engine, session, 6) == talk(engine_of(tiny), 7)[1][6]
    child = engine.fork(session, MessageKey("a3"))
    assert turn(engine, child, 4) == said[4]


@pytest.mark.parametrize("images", [1, 3, 7, 20])
def test_the_host_tier_is_bounded_and_never_in_the_way(tiny: Tiny, images: int) -> None:
    size = engine_of(tiny).pages.page_bytes
    engine = engine_of(tiny, sessions=1, host_bytes=images * size + size // 2)
    session, said = talk(engine, 6)
    stats = engine.cache.prefix.stats()
    assert stats.images == stats.image_capacity == images
    assert stats.image_bytes == images * size
    engine.rewind(session, MessageKey("q3"))
    assert answer(engine, session, "a3") == said[3]


@pytest.mark.parametrize("policy", [Policy.ROUND_ROBIN, Policy.SCORED])
def test_of_a_chat_that_waits_what_left_its_window_is_dropped_first(tiny: Tiny, policy: Policy) -> None:
    """Without a page of its ring it would have to go back; what left its window is needed only to fork there."""
    size = engine_of(tiny).pages.page_bytes
    engine = engine_of(tiny, sessions=1, host_bytes=(96 // PAGE + 8) * size, policy=policy)
    session, _ = talk(engine, 9)
    talk(engine, 1, "another")
    assert 1 <= engine.unread(session) <= 2 * PAGE


def test_a_page_is_known_by_everything_before_it(tiny: Tiny) -> None:
    """The same tokens after another beginning, or with messages cut elsewhere, are another page."""
    engine = engine_of(tiny, sessions=4)
    first, _ = talk(engine, 2)
    for system, texts in (("be short", ["question 0 "]), ("be brief", ["question 0 ", "question 1 xxxxx"])):
        other = engine.open_session(system)
        for number, text in enumerate(texts):
            engine.add_user(other, MessageKey(f"q{number}"), text)
        known = engine._chats[other].session.end - engine.unread(other)
        assert known <= engine.window(other).sink_tokens + len("<user\n") + len(texts[0])
    assert first


def test_a_prompt_that_goes_once_round_the_ring_is_known_as_it_is(tiny: Tiny) -> None:
    """Read in one chunk, it would come round to the page in which it began."""

    def edited(chat: Engine, session: SessionId, length: int) -> torch.Tensor:
        child = chat.fork(session, MessageKey("a3"))
        chat.add_user(child, MessageKey("edited"), "x" * length)
        answer(chat, child, "b4")
        return keys(chat, child)

    alone = engine_of(tiny, sessions=2, kv_format=KvFormat.FULL)
    fresh, _ = talk(alone, 4)
    engine = engine_of(tiny, sessions=2, chunk_tokens=200, kv_format=KvFormat.FULL)
    session, _ = talk(engine, 4)
    ring = engine.window(session).ring_tokens
    chat = engine._chats[session].session
    assert chat.shape.offset(chat.position)
    around = len("<user\n>\n<assistant\n")
    engine.add_user(session, MessageKey("q4"), "x" * (ring - len(chat.pending) - around))
    answer(engine, session, "a4")
    torch.testing.assert_close(edited(engine, session, ring // 2), edited(alone, fresh, ring // 2), rtol=0, atol=1e-4)


def test_a_full_window_slides_without_a_write_to_the_page_table(tiny: Tiny) -> None:
    engine = engine_of(tiny, sessions=2)
    session, _ = talk(engine, 6)
    s = engine._chats[session].session
    table, held = list(s.table), {}
    for number in range(6, 12):
        engine.add_user(session, MessageKey(f"q{number}"), f"question {number}")
        engine.generate(session, MessageKey(f"a{number}"), GREEDY)
        while engine.busy:
            engine.step()
            s = engine._chats[session].session
            assert s.table == table
            for index, page in enumerate(table):
                first = s.page_pos[index]
                if first + PAGE <= s.position:
                    now = (engine.pages.k[:, :, page].clone(), engine.pages.v[:, :, page].clone())
                    k, v = held.setdefault((page, first), now)
                    torch.testing.assert_close(now[0], k, rtol=0, atol=0, equal_nan=True)
                    torch.testing.assert_close(now[1], v, rtol=0, atol=0, equal_nan=True)
    assert len(held) > 3 * len(table)


def test_a_message_that_was_never_said_is_refused(tiny: Tiny) -> None:
    engine = engine_of(tiny)
    session, _ = talk(engine, 1)
    for call in (engine.fork, engine.rewind):
        with pytest.raises(EngineError) as refused:
            call(session, MessageKey("q77"))
        assert "q77" in one_sentence(refused.value)


@pytest.mark.parametrize("missing", [0, 1, 2, 40])
def test_each_position_that_leaves_is_told_once_also_by_a_chat_that_comes_and_goes(tiny: Tiny, missing: int) -> None:
    """The host tier holds all of a window, all but its oldest page, less than is of use, or nothing."""
    pages = engine_of(tiny).pages
    images = max(0, pages.count // 2 - missing)
    engine = engine_of(tiny, sessions=1, host_bytes=images * pages.page_bytes)
    session = engine.open_session("be brief")
    told: list[tuple[int, int]] = []
    for number in range(3 * PAGE):
        engine.add_user(session, MessageKey(f"q{number}"), "x" * (number % PAGE))
        engine.generate(session, MessageKey(f"a{number}"), SamplingParams(max_tokens=3))
        while engine.busy:
            told += [(e.span.first, e.span.last) for e in engine.step() if isinstance(e, TokensEvicted)]
        engine.swap_out(session)
    firsts, lasts = zip(*told, strict=True)
    assert firsts[0] == engine.window(session).sink_tokens
    assert [last + 1 for last in lasts[:-1]] == list(firsts[1:])


@pytest.mark.parametrize("failing", range(0, 12, 3))
def test_a_chat_whose_step_failed_can_be_asked_again(tiny: Tiny, failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass may have written over pages that its first tokens still see, and had claimed others."""
    long = "x" * 150
    engine = engine_of(tiny, sessions=2, host_bytes=0, kv_format=KvFormat.FULL)
    session, _ = talk(engine, 4)
    shares = engine.fork(session, MessageKey("a3"))
    for chat in (session, shares):
        engine.add_user(chat, MessageKey(f"long{chat}"), long)
    engine.generate(session, MessageKey("b"), GREEDY)
    engine.generate(shares, MessageKey("b"), GREEDY)
    forward, passes = Decoder.forward, 0

    def fails(decoder: Decoder, *inputs: Any) -> torch.Tensor:
        nonlocal passes
        hidden, passes = forward(decoder, *inputs), passes + 1
        if passes > failing:
            raise RuntimeError("out of memory")
        return hidden

    with monkeypatch.context() as broken:
        broken.setattr(Decoder, "forward", fails)
        with pytest.raises(RuntimeError):
            run(engine)
    engine.check()
    run(engine)
    engine.check()
    fresh = engine_of(tiny, kv_format=KvFormat.FULL)
    other, _ = talk(fresh, 4)
    fresh.add_user(other, MessageKey("long"), long)
    answer(fresh, other, "b")
    for chat in (session, shares):
        engine.rewind(chat, MessageKey(f"long{chat}"))
        answer(engine, chat, "b")
        torch.testing.assert_close(keys(engine, chat), keys(fresh, other), rtol=0, atol=1e-4)


def test_a_message_without_a_token_can_be_gone_back_to(tiny: Tiny) -> None:
    """A template that writes nothing around an answer, and an answer that says nothing."""
    template = ChatTemplate("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    engine = engine_of(tiny)
    engine.model = replace(engine.model, template=template)
    session = engine.open_session("be brief")
    engine.add_user(session, MessageKey("q0"), "a question")
    engine.add_answer(session, MessageKey("a0"), "")
    engine.add_user(session, MessageKey("q1"), "another question")
    engine.generate(session, MessageKey("a1"), GREEDY)
    engine.cancel(session)
    run(engine)
    engine.add_user(session, MessageKey("q2"), "the last")
    end = engine._chats[session].session.end
    assert engine.fork(session, MessageKey("a0")) != session
    for key, left in (("a1", len("the last")), ("a1", 0), ("q1", 0), ("a0", len("another question")), ("q0", 0)):
        engine.rewind(session, MessageKey(key))
        end -= left
        assert engine._chats[session].session.end == end
        engine.check()
    engine.generate(session, MessageKey("b0"), GREEDY)
    run(engine)
    assert engine._chats[session].session.boundary_after(MessageKey("b0")) == end + GREEDY.max_tokens
    with pytest.raises(EngineError):
        engine.rewind(session, MessageKey("q1"))
