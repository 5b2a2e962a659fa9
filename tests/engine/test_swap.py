"""A chat that waited comes back as it was: all it goes on from by copy, its last page included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.answer import Priority
from engine.cache.formats.kv_format import KvFormat
from engine.cache.prefix import PrefixCache
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, TokensEvicted
from engine.heat import Heat
from engine.policy import Policy
from engine.sampling.params import SamplingParams
from engine.types import MessageKey, PageId, PageKey, SessionId
from tests.engine.test_cache import GREEDY, PAGE, answer, keys, run, talk, turn, wipe
from tests.engine.tiny import Tiny

FORMATS = [KvFormat.AUTO, KvFormat.INT8, KvFormat.TQ3]
KINDS: list[KvFormat | Policy] = [*FORMATS, Policy.SCORED]
"""How pages are kept, or which of them stay."""


def engine_in(
    tiny: Tiny, kind: KvFormat | Policy, *, sessions: int = 2, images: int = 500, page_size: int = PAGE
) -> Engine:
    config = EngineConfig(96, page_size, sessions, chunk_tokens=20)
    config = (
        replace(config, policy=kind, kv_format=KvFormat.FULL)
        if isinstance(kind, Policy)
        else replace(config, kv_format=kind)
    )
    size = Engine(tiny.ours, config).pages.page_bytes
    engine = Engine(replace(tiny.ours, stop_ids=frozenset()), replace(config, host_bytes=images * size))
    engine.pages.k.fill_(float("nan"))
    engine.pages.v.fill_(float("nan"))
    return engine


def heat(engine: Engine, session: SessionId) -> Heat:
    """Of each page that a chat's ring holds; empty where pages are not scored."""
    ring = engine._chats[session].session.ring
    return {} if ring is None else dict(ring.heat)


def waiting(engine: Engine, session: SessionId) -> int:
    return len(engine._chats[session].session.pending)


@pytest.mark.parametrize("kind", KINDS)
def test_coming_back_computes_nothing_again(tiny: Tiny, kind: KvFormat | Policy) -> None:
    """Wherever in its page the chat stopped, before and after its window began to slide."""
    engine, stayed = engine_in(tiny, kind, sessions=1), engine_in(tiny, kind, sessions=1)
    session, other = (e.open_session("a system prompt of some length") for e in (engine, stayed))
    offsets = set()
    for number in range(14):
        assert turn(engine, session, number) == turn(stayed, other, number)
        s = engine._chats[session].session
        offsets.add(s.shape.offset(s.position))
        engine.swap_out(session)
        wipe(engine)
        assert engine.cache.pool.stats().free == engine.cache.pool.total
        assert engine.unread(session) == waiting(engine, session) > 0
        assert heat(engine, session) == pytest.approx(heat(stayed, other), rel=1e-5)
    assert engine.stats().computed_tokens == stayed.stats().computed_tokens
    assert engine.window(session).evicted > 96
    assert len(offsets) > 4
    turn(engine, session, 14)
    turn(stayed, other, 14)
    if kind is KvFormat.AUTO:
        assert torch.equal(keys(engine, session), keys(stayed, other))
    if kind is Policy.SCORED:  # its pages lie elsewhere, and are summed up in another order
        torch.testing.assert_close(keys(engine, session), keys(stayed, other), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_makes_room_goes_on_where_it_was(tiny: Tiny, kind: KvFormat | Policy) -> None:
    """Swapped out between any two steps, in its prompt or in its answer, by a chat that is on screen."""
    told, computed = set(), set()
    for steps in range(0, 14, 3):
        engine = engine_in(tiny, kind, sessions=1)
        quick = engine.open_session("another")
        engine.add_user(quick, MessageKey("q"), "quick")
        slow, _ = talk(engine, 4)
        engine.add_user(slow, MessageKey("long"), "x" * 70)
        engine.generate(slow, MessageKey("b"), GREEDY, Priority.BACKGROUND)
        for _ in range(steps):
            engine.step()
        engine.generate(quick, MessageKey("a"), GREEDY)
        events = []
        while engine.busy:
            events += engine.step()
            wipe(engine)
        told.add(tuple(event.text for event in events if isinstance(event, AnswerFinished)))
        computed.add(engine.stats().computed_tokens)
    assert len(told) == len(computed) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_fork_at_the_end_goes_on_where_its_parent_stands(tiny: Tiny, kind: KvFormat | Policy, swapped: bool) -> None:
    engine, alone = engine_in(tiny, kind, sessions=3), engine_in(tiny, kind)
    session, _ = talk(engine, 6)
    expected = turn(alone, talk(alone, 6)[0], 6)
    if swapped:
        engine.swap_out(session)
    children = [engine.fork(session, MessageKey("a5")) for _ in range(2)]
    for child in children:
        assert engine.unread(child) == waiting(engine, session)
    for chat in (children[0], session, children[1]):
        assert turn(engine, chat, 6) == expected
        assert heat(engine, chat) == pytest.approx(heat(engine, children[0]), rel=1e-5)


@pytest.mark.parametrize("kv_format", FORMATS)
def test_what_is_asked_again_in_the_page_being_written_computes_one_token(tiny: Tiny, kv_format: KvFormat) -> None:
    engine, near = engine_in(tiny, kv_format, sessions=1, page_size=16), 0
    session, said = talk(engine, 1)
    for number in range(1, 12):
        key = MessageKey(f"q{number}")
        engine.add_user(session, key, f"question {number} " + "x" * (number * 5 % 17))
        engine.generate(session, MessageKey("short"), SamplingParams(max_tokens=1))
        run(engine)
        s = engine._chats[session].session
        end, first = s.boundary_after(key), s.shape.page_start(s.position)
        engine.rewind(session, key)
        if end - 1 > first:
            near += 1
            assert engine.unread(session) == 1
        assert engine.unread(session) <= 16
        said.append(answer(engine, session, f"a{number}"))
    assert near > 1
    assert said == talk(engine_in(tiny, kv_format, page_size=16), 12)[1]


@pytest.mark.parametrize("kind", [KvFormat.AUTO, KvFormat.INT8, Policy.SCORED])
@pytest.mark.parametrize("images", [0, 9, 12, 16, 30])
def test_without_room_for_its_last_page_a_chat_computes_that_again(
    tiny: Tiny, kind: KvFormat | Policy, images: int
) -> None:
    """The pages of its window come first: with room for these alone, less than a page is computed again."""
    engine = engine_in(tiny, kind, sessions=1, images=images)
    session, said = talk(engine, 7)
    engine.swap_out(session)
    engine.check()
    shape, again = engine._chats[session].session.shape, engine.unread(session) - waiting(engine, session)
    sinks = 4 * shape.sink_pages if kind is KvFormat.INT8 else shape.sink_pages
    if images >= sinks + shape.ring_pages:
        assert again < PAGE
    expected = talk(engine_in(tiny, kind), 8)[1]
    assert [*said, turn(engine, session, 7)] == expected


@pytest.mark.parametrize("kind", [KvFormat.FULL, Policy.SCORED])
@pytest.mark.parametrize("images", [5, 14])
def test_what_is_known_by_a_key_is_always_the_same(
    tiny: Tiny, kind: KvFormat | Policy, images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its image had been dropped, and the page that is being written lies where it lay."""
    engine, contents = engine_in(tiny, kind, images=images), dict[PageKey, Tensor]()
    heats: dict[PageKey, Heat] = {}
    add, keep = PrefixCache.add, PrefixCache.keep

    def same(key: PageKey, tokens: Sequence[int], page: PageId, heat: Heat | None) -> None:
        now = engine.pages.k[:, :, page, : len(tokens)].clone()
        before = contents.setdefault(key, now)
        both = now.isfinite() & before.isfinite()  # what had left the window when the page became full is poisoned
        torch.testing.assert_close(now[both], before[both], rtol=0, atol=1e-4)
        if heat is not None:
            assert heat == pytest.approx(heats.setdefault(key, heat), rel=1e-5)

    def added(cache: PrefixCache, key: PageKey, tokens: Sequence[int], page: PageId, heat: Heat | None) -> None:
        same(key, tokens, page, heat)
        add(cache, key, tokens, page, heat)

    def kept(cache: PrefixCache, key: PageKey, tokens: Sequence[int], page: PageId, heat: Heat | None) -> None:
        same(key, tokens, page, heat)
        keep(cache, key, tokens, page, heat)

    monkeypatch.setattr(PrefixCache, "add", added)
    monkeypatch.setattr(PrefixCache, "keep", kept)
    chats = [talk(engine, 3, system)[0] for system in ("one", "two", "two")]
    for number in range(3, 7):
        for chat in chats:
            turn(engine, chat, number)
            engine.swap_out(chat)
    assert len(contents) > 50


def test_a_scored_ring_comes_back_with_the_heat_it_left_with(tiny: Tiny) -> None:
    """Also that of the page being written, wherever in it the chat stopped; with all that was said read, or not."""
    engine, offsets = engine_in(tiny, Policy.SCORED, sessions=1), set()
    session = engine.open_session("be brief")
    for number in range(12):
        turn(engine, session, number)
        if number % 2:
            engine.read(session, Priority.FOREGROUND)
            run(engine)
            assert not waiting(engine, session)
        s, before = engine._chats[session].session, heat(engine, session)
        offsets.add(s.shape.offset(s.position))
        engine.swap_out(session)
        engine.add_user(session, MessageKey(f"more {number}"), "and")
        assert engine.unread(session) == waiting(engine, session)
        engine.read(session, Priority.FOREGROUND)
        assert heat(engine, session) == before
        run(engine)
    assert len(offsets) > 4
    assert engine.window(session).evicted > 96


@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize("images", [6, 5, 0])
def test_a_scored_page_is_told_once_also_by_a_chat_that_comes_and_goes(
    tiny: Tiny, images: int, priority: Priority
) -> None:
    """With room for all it goes on from, for all but the page that is being written, or for nothing; asked again in
    that page, or not. In the background it comes back inside a step, which may write over a page before anybody saw
    it."""
    engine = engine_in(tiny, Policy.SCORED, sessions=1, images=images, page_size=16)
    assert engine.config.quota_pages == 6
    session, told, again = engine.open_session("be brief"), list[int](), 0
    for number in range(24):
        engine.add_user(session, MessageKey(f"q{number}"), "x" * (number % 8))
        engine.generate(session, MessageKey(f"a{number}"), SamplingParams(max_tokens=1), priority)
        while engine.busy:
            for event in engine.step():
                told += range(event.span.first, event.span.last + 1) if isinstance(event, TokensEvicted) else ()
        s, key = engine._chats[session].session, MessageKey(f"q{number}")
        if s.shape.offset(s.position):  # else it is a page of its ring that there is no room for
            engine.swap_out(session)
            if number % 3 and s.boundary_after(key) > s.shape.page_start(s.position):
                engine.rewind(session, key)
                again += 1
            assert engine.unread(session) - waiting(engine, session) < 16 or not images
        assert len(told) == len(set(told))
    assert again > 1
    s = engine._chats[session].session
    assert len(told) > 2 * 96
    assert set(told) == set(range(s.shape.sinks, s.position)) - set(engine.visible_positions(session))


@pytest.mark.parametrize("kind", [KvFormat.AUTO, Policy.SCORED])
def test_a_chat_that_comes_back_takes_what_another_computed_of_its_text(tiny: Tiny, kind: KvFormat | Policy) -> None:
    """Its own answer was cancelled before its prompt was read; that of its parent was not."""
    engine, alone = engine_in(tiny, kind), engine_in(tiny, kind)
    for e in (engine, alone):
        session, _ = talk(e, 6)
        e.add_user(session, MessageKey("q"), "xx")
    child = engine.fork(session, MessageKey("q"))
    engine.generate(child, MessageKey("c"), GREEDY)
    engine.cancel(child)
    run(engine)
    engine.swap_out(child)
    before = engine.unread(child)
    assert before == waiting(engine, child)
    said = [answer(e, session, "a") for e in (engine, alone)]
    assert engine.unread(child) < before
    assert said[0] == said[1]
    engine.rewind(child, MessageKey("q"))
    assert answer(engine, child, "b") == said[0]
