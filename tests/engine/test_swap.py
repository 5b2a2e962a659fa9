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
from engine.events import AnswerFinished
from engine.heat import Heat
from engine.sampling.params import SamplingParams
from engine.types import MessageKey, PageId, PageKey, SessionId
from tests.engine.test_cache import GREEDY, PAGE, answer, keys, run, talk, turn, wipe
from tests.engine.tiny import Tiny

FORMATS = [KvFormat.AUTO, KvFormat.INT8, KvFormat.TQ3]


def engine_in(
    tiny: Tiny, kv_format: KvFormat, *, sessions: int = 2, images: int = 500, page_size: int = PAGE
) -> Engine:
    config = EngineConfig(96, page_size, sessions, chunk_tokens=20, kv_format=kv_format)
    size = Engine(tiny.ours, config).pages.page_bytes
    engine = Engine(replace(tiny.ours, stop_ids=frozenset()), replace(config, host_bytes=images * size))
    engine.pages.k.fill_(float("nan"))
    engine.pages.v.fill_(float("nan"))
    return engine


def waiting(engine: Engine, session: SessionId) -> int:
    return len(engine._chats[session].session.pending)


@pytest.mark.parametrize("kv_format", FORMATS)
def test_coming_back_computes_nothing_again(tiny: Tiny, kv_format: KvFormat) -> None:
    """Wherever in its page the chat stopped, before and after its window began to slide."""
    engine, stayed = engine_in(tiny, kv_format, sessions=1), engine_in(tiny, kv_format, sessions=1)
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
    assert engine.stats().computed_tokens == stayed.stats().computed_tokens
    assert engine.window(session).evicted > 96
    assert len(offsets) > 4
    turn(engine, session, 14)
    turn(stayed, other, 14)
    if kv_format is KvFormat.AUTO:
        assert torch.equal(keys(engine, session), keys(stayed, other))


@pytest.mark.parametrize("kv_format", FORMATS)
def test_an_answer_that_makes_room_goes_on_where_it_was(tiny: Tiny, kv_format: KvFormat) -> None:
    """Swapped out between any two steps, in its prompt or in its answer, by a chat that is on screen."""
    told, computed = set(), set()
    for steps in range(0, 14, 3):
        engine = engine_in(tiny, kv_format, sessions=1)
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


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_fork_at_the_end_goes_on_where_its_parent_stands(tiny: Tiny, kv_format: KvFormat, swapped: bool) -> None:
    engine, alone = engine_in(tiny, kv_format, sessions=3), engine_in(tiny, kv_format)
    session, _ = talk(engine, 6)
    expected = turn(alone, talk(alone, 6)[0], 6)
    if swapped:
        engine.swap_out(session)
    children = [engine.fork(session, MessageKey("a5")) for _ in range(2)]
    for child in children:
        assert engine.unread(child) == waiting(engine, session)
    for chat in (children[0], session, children[1]):
        assert turn(engine, chat, 6) == expected


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


@pytest.mark.parametrize("kv_format", [KvFormat.AUTO, KvFormat.INT8])
@pytest.mark.parametrize("images", [0, 9, 12, 16, 30])
def test_without_room_for_its_last_page_a_chat_computes_that_again(
    tiny: Tiny, kv_format: KvFormat, images: int
) -> None:
    """The pages of its window come first: with room for these alone, less than a page is computed again."""
    engine = engine_in(tiny, kv_format, sessions=1, images=images)
    session, said = talk(engine, 7)
    engine.swap_out(session)
    engine.check()
    shape, again = engine._chats[session].session.shape, engine.unread(session) - waiting(engine, session)
    sinks = shape.sink_pages if kv_format is KvFormat.AUTO else 4 * shape.sink_pages
    if images >= sinks + shape.ring_pages:
        assert again < PAGE
    expected = talk(engine_in(tiny, kv_format), 8)[1]
    assert [*said, turn(engine, session, 7)] == expected


@pytest.mark.parametrize("images", [5, 14])
def test_what_is_known_by_a_key_is_always_the_same(tiny: Tiny, images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its image had been dropped, and the page that is being written lies where it lay."""
    engine, contents = engine_in(tiny, KvFormat.AUTO, images=images), dict[PageKey, Tensor]()
    add, keep = PrefixCache.add, PrefixCache.keep

    def same(key: PageKey, tokens: Sequence[int], page: PageId) -> None:
        now = engine.pages.k[:, :, page, : len(tokens)].clone()
        before = contents.setdefault(key, now)
        both = now.isfinite() & before.isfinite()  # what had left the window when the page became full is poisoned
        torch.testing.assert_close(now[both], before[both], rtol=0, atol=1e-4)

    def added(cache: PrefixCache, key: PageKey, tokens: Sequence[int], page: PageId, heat: Heat | None) -> None:
        same(key, tokens, page)
        add(cache, key, tokens, page, heat)

    def kept(cache: PrefixCache, key: PageKey, tokens: Sequence[int], page: PageId) -> None:
        same(key, tokens, page)
        keep(cache, key, tokens, page)

    monkeypatch.setattr(PrefixCache, "add", added)
    monkeypatch.setattr(PrefixCache, "keep", kept)
    chats = [talk(engine, 3, system)[0] for system in ("one", "two", "two")]
    for number in range(3, 7):
        for chat in chats:
            turn(engine, chat, number)
            engine.swap_out(chat)
    assert len(contents) > 50
