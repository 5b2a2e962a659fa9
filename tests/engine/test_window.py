from __future__ import annotations

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from engine.types import Position
from engine.window import WindowShape, page_edge, sink_phase, window_start
from tests.engine.reference import visible

shapes = st.builds(WindowShape, page_size=st.integers(1, 9), sinks=st.integers(0, 20), ring_pages=st.integers(1, 7))


@st.composite
def histories(draw: st.DrawFn) -> tuple[WindowShape, list[Position], Position]:
    shape = draw(shapes)
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
    starts, at = [], shape.sinks
    for length in lengths:
        starts.append(Position(at))
        at += length
    return shape, starts, Position(draw(st.integers(0, at + 10)))


@given(histories())
def test_the_rule_is_the_definition(history: tuple[WindowShape, list[Position], Position]) -> None:
    shape, starts, t = history
    start = window_start(shape, t, starts)
    see = visible(t, shape.sinks, shape.page_size, shape.ring_pages, list(starts))
    assert see == list(range(min(shape.sinks, t + 1))) + list(range(start, t + 1))


@given(histories())
def test_nothing_visible_has_been_overwritten(history: tuple[WindowShape, list[Position], Position]) -> None:
    shape, starts, t = history
    if t < shape.sinks:
        return
    start = window_start(shape, t, starts)
    assert shape.sinks <= start <= t
    assert t - start < shape.ring_tokens
    slots = {(shape.table_index(Position(p)), shape.offset(Position(p))) for p in range(start, t + 1)}
    assert len(slots) == t - start + 1
    assert all(shape.sink_pages <= index < shape.quota_pages for index, _ in slots)


@given(histories())
def test_what_left_never_comes_back(history: tuple[WindowShape, list[Position], Position]) -> None:
    shape, starts, t = history
    assert window_start(shape, t, starts) <= window_start(shape, Position(t + 1), starts)


@given(histories())
def test_the_future_and_the_forgotten_past_play_no_part(
    history: tuple[WindowShape, list[Position], Position],
) -> None:
    shape, starts, t = history
    whole = window_start(shape, t, starts)
    known = starts[: bisect_right(starts, t)]
    assert window_start(shape, t, known) == whole
    kept = known[max(0, bisect_right(known, page_edge(shape, t)) - 1) :]
    assert window_start(shape, t, kept) == whole


@given(histories())
def test_the_window_begins_at_a_message_unless_a_long_one_is_cut(
    history: tuple[WindowShape, list[Position], Position],
) -> None:
    shape, starts, t = history
    start = window_start(shape, t, starts)
    if t < shape.sinks or start in starts or start == shape.sinks:
        return
    i = bisect_right(starts, start) - 1
    following = [s for s in starts[i + 1 :] if s <= t]
    assert not following or following[0] - starts[i] > shape.ring_tokens // 2


@given(histories())
def test_sink_distances_are_those_inside_the_cache(
    history: tuple[WindowShape, list[Position], Position],
) -> None:
    shape, starts, t = history
    start = window_start(shape, t, starts)
    see = visible(t, shape.sinks, shape.page_size, shape.ring_pages, list(starts))
    assert sink_phase(shape, t, start) == len(see) - 1


@given(shapes, st.integers(0, 300))
def test_until_eviction_counts_to_the_next_lost_page(shape: WindowShape, t: int) -> None:
    room = shape.until_eviction(Position(t))
    assert room >= 0
    edge = page_edge(shape, Position(t))
    assert page_edge(shape, Position(t + room)) == edge
    assert page_edge(shape, Position(t + room + 1)) > edge
