from __future__ import annotations

from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from engine.scheduler import chunk_length, schedule
from engine.session import Session
from engine.types import PageId, Position, SessionId
from engine.window import WindowShape, window_start


def session_of(page: int, sinks: int, ring: int, position: int, waiting: int, number: int = 1) -> Session:
    shape = WindowShape(page, sinks, ring)
    session = Session(SessionId(number), shape, [PageId(i) for i in range(shape.quota_pages)])
    session.past = array("i", [0] * position)
    session.pending = [0] * waiting
    return session


sessions = st.builds(
    session_of,
    page=st.integers(1, 9),
    sinks=st.integers(0, 20),
    ring=st.integers(2, 6),
    position=st.integers(0, 200),
    waiting=st.integers(1, 300),
)


@given(sessions, st.integers(1, 80))
def test_a_chunk_is_bounded_and_ends_at_an_edge(session: Session, most: int) -> None:
    shape, waiting, count = session.shape, len(session.pending), chunk_length(session, most)
    assert 1 <= count <= min(waiting, most)
    end = session.position + count
    if session.position < shape.sinks:
        assert end <= shape.sinks
        return
    assert count <= shape.ring_tokens
    to_edge = shape.page_size - shape.offset(session.position)
    assert count == waiting or (end - shape.sinks) % shape.page_size == 0 or count < to_edge


@example(session_of(page=4, sinks=0, ring=2, position=1, waiting=8), 80)
@given(sessions, st.integers(1, 80))
def test_no_token_of_a_chunk_sees_what_the_chunk_overwrites_later(session: Session, most: int) -> None:
    count, shape = chunk_length(session, most), session.shape
    chunk = range(session.position, session.position + count)
    slots = [session.slot(Position(t)) for t in chunk]
    assert len(set(slots)) == count
    pages = {(shape.table_index(Position(t)), shape.page_start(Position(t))) for t in chunk}
    assert len({index for index, _ in pages}) == len(pages), "a page that the chunk fills is written over by it"
    last = chunk[-1]
    if last >= shape.sinks:
        seen = range(window_start(shape, Position(last), []), last + 1)
        assert len({session.slot(Position(t)) for t in seen}) == len(seen)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=6), st.integers(1, 50))
def test_everyone_who_decodes_goes_and_one_prompt(waiting: list[tuple[int, int]], most: int) -> None:
    all_sessions = [session_of(4, 3, 3, 20 + p, w, number) for number, (p, w) in enumerate(waiting)]
    plan = schedule(all_sessions, most)
    assert plan.decode == [s for s in all_sessions if len(s.pending) == 1]
    first = next((s for s in all_sessions if len(s.pending) > 1), None)
    assert (plan.prefill.session if plan.prefill else None) is first
    assert (plan.tokens > 0) == any(s.pending for s in all_sessions)


@given(sessions, st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_a_guess_never_leaves_its_page(session: Session, guess: list[int]) -> None:
    session.pending = [7]
    plan = schedule([session], 50).guessing(session, guess)
    ahead = list(plan.prefill.guess) if plan.prefill else []
    assert ahead == guess[: len(ahead)]
    assert plan.tokens == 1 + len(ahead)
    assert plan.decode == ([] if ahead else [session])
    if session.position >= session.shape.sinks:
        pages = {session.shape.page_start(Position(session.position + i)) for i in range(1 + len(ahead))}
        assert len(pages) == 1
    else:
        assert not ahead


@given(sessions, sessions)
def test_nothing_is_guessed_beside_a_prompt(one: Session, other: Session) -> None:
    one.pending, other.pending = [7], [1, 2, 3]
    plan = schedule([one, other], 50)
    assert plan.guessing(one, [1, 2]) is plan
