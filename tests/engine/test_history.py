"""What a history is known by: the same keys however it came about, each computed once, and found from its end."""

from __future__ import annotations

from array import array

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cache import kv_cache
from engine.cache.kv_cache import KvCache
from engine.cache.pages import Pages
from engine.cache.prefix import KnownPage
from engine.session import Session
from engine.types import MessageKey, PageId, PageKey, Position, SessionId
from engine.window import WindowShape, full_pages, page_bounds
from tests.engine.reference import visible
from tests.engine.test_cache import PAGE, answer, engine_of, talk, turn
from tests.engine.tiny import Tiny

shapes = st.builds(WindowShape, page_size=st.integers(1, 5), sinks=st.integers(1, 9), ring_pages=st.integers(1, 5))
messages = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=12)), max_size=6)
"""(which key, tokens): the same key twice in a row goes on with a message."""


def cache_of(shape: WindowShape) -> KvCache:
    pages = Pages(
        layers=1,
        kv_heads=1,
        head_dim=1,
        pages=shape.quota_pages,
        page_size=shape.page_size,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return KvCache("model", pages, sessions=1, quota_pages=shape.quota_pages, host_images=0)


def session_of(shape: WindowShape, said: list[tuple[int, list[int]]]) -> Session:
    session = Session(SessionId(1), shape)
    session.append(None, [1] * shape.sinks)
    say(session, said)
    return session


def say(session: Session, said: list[tuple[int, list[int]]]) -> None:
    for key, tokens in said:
        session.append(MessageKey(f"m{key}"), tokens)


def keys_of(cache: KvCache, session: Session) -> list[PageKey]:
    return cache._keys(session, full_pages(session.shape, session.end))


@given(shapes, messages, st.data())
def test_a_history_that_was_cut_has_the_keys_of_one_that_was_never_longer(
    shape: WindowShape, said: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    """Cut anywhere, also inside a message, and gone on with another or the same one."""
    cache, session = cache_of(shape), session_of(shape, said)
    for _ in range(data.draw(st.integers(1, 3))):
        keys_of(cache, session)
        end = Position(data.draw(st.integers(shape.sinks, session.end)))
        computed = Position(data.draw(st.integers(0, end)))
        parent, session = session, session.up_to(SessionId(2), end, computed)
        assert (session.position, session.end) == (computed, end)
        assert parent.tokens(Position(0), end) == session.tokens(Position(0), end)
        before = [(span.key, span.first, span.end) for span in parent.messages]
        say(session, data.draw(messages))
        assert before == [(span.key, span.first, span.end) for span in parent.messages]
    fresh = Session(SessionId(3), shape)
    fresh.append(None, session.tokens(Position(0), Position(shape.sinks)).tolist())
    for span in session.messages:
        fresh.append(span.key, session.tokens(span.first, span.end).tolist())
    assert fresh.end == session.end
    assert keys_of(cache, session) == keys_of(cache, fresh)
    for t in map(Position, range(session.end)):
        see = visible(t, shape.sinks, shape.page_size, shape.ring_pages, [span.first for span in session.messages])
        assert session.window_at(t) == next((p for p in see if p >= shape.sinks), shape.sinks)


@given(shapes, st.integers(0, 80), st.sets(st.integers(0, 40)), st.integers(0, 80))
def test_a_history_is_taken_up_at_the_furthest_point_that_known_pages_lead_to(
    shape: WindowShape, length: int, gone: set[int], back: int
) -> None:
    cache, session = cache_of(shape), session_of(shape, [(0, [2] * (length + 1))])
    end = Position(max(1, session.end - back))
    for number, key in enumerate(keys_of(cache, session)):
        tokens = tuple(session.tokens(*page_bounds(shape, number)))
        if number not in gone:
            cache.prefix._known[key] = KnownPage(tokens, PageId(0), None)
    found = cache.find(session, end)
    sinks, full = shape.sink_pages, full_pages(shape, Position(end - 1))

    def leads_here(until: int) -> bool:
        needed = {*range(sinks), *range(max(sinks, until - shape.ring_pages + 1), until)}
        return not needed & gone

    until = next((number for number in range(full, sinks - 1, -1) if leads_here(number)), 0)
    assert found.position == (page_bounds(shape, until - 1)[1] if until else 0)
    held = {*range(sinks), *range(max(sinks, until - shape.ring_pages), until)} - gone if until else set()
    assert [number for number, _ in found.kept] == sorted(held)
    assert found.position < end


def test_a_page_is_hashed_once(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the history is: cutting, forking and coming back hash what is new and nothing else, but for the one
    page that is not full."""
    engine, hashed, tails, page_key = engine_of(tiny, sessions=1), list[int](), list[int](), kv_cache.page_key

    def counted(parent: PageKey, tokens: array[int], starts: list[int]) -> PageKey:
        (hashed if len(tokens) == PAGE else tails).append(len(tokens))
        return page_key(parent, tokens, starts)

    monkeypatch.setattr(kv_cache, "page_key", counted)
    session, _ = talk(engine, 9)
    shape = engine._chats[session].session.shape
    full = full_pages(shape, engine.window(session).position)
    assert len(hashed) + len(tails) == full > 3 * shape.ring_pages
    assert len(tails) == (shape.sinks % PAGE > 0)
    for number in (8, 6, 3):
        hashed.clear()
        tails.clear()
        child = engine.fork(session, MessageKey(f"a{number - 1}"))
        engine.unread(child)
        engine.rewind(session, MessageKey(f"q{number}"))
        engine.swap_out(session)
        assert engine.unread(session) <= PAGE
        assert not hashed
        assert len(tails) <= 3
        chats = [engine._chats[chat].session for chat in (session, child)]
        before = sum(full_pages(shape, chat.end) for chat in chats)
        answer(engine, session, f"a{number}")
        turn(engine, child, number)
        chats = [engine._chats[chat].session for chat in (session, child)]
        assert 0 < len(hashed) <= sum(full_pages(shape, chat.end) for chat in chats) - before
        engine.close_session(child)
