"""Reports as hypothesis makes them."""

from __future__ import annotations

from hypothesis import strategies as st

from app.bench.report import LeftOut, Machine, Program, Report, Setting, Speeds, Turn

MACHINE = Machine("a processor", 2, "a system", "3.11")
names = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=12)
seconds = st.floats(1e-4, 1e3)
rates = st.floats(0.1, 1e5)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program that was measured so far as it was."""
    tokens = sorted(draw(st.lists(st.integers(1, 10**6), max_size=6, unique=True)))
    turns = [
        Turn(number, count, draw(st.integers(0, count)), draw(seconds), draw(st.none() | seconds))
        for number, count in enumerate(tokens, 1)
    ]
    long, short = draw(st.none() | rates), draw(st.none() | rates)
    speeds = draw(st.none() | st.builds(Speeds, st.just(1024), rates, st.just(long), st.just(32), st.just(short)))
    return Program(draw(names), draw(names), draw(seconds), speeds, turns)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """A report of up to four programs."""
    setting = Setting(draw(names), "auto", 1, "cpu", "float32", 2, draw(st.integers(256, 10**5)), 32, "auto", "p", 12)
    some = draw(st.lists(programs(), min_size=1, max_size=4))
    left = draw(st.lists(st.builds(LeftOut, names, names), max_size=2))
    return Report("1", "now", MACHINE, setting, some, left, draw(st.booleans()), draw(st.just("") | names))


def report(*some: Program, window: int = 1000) -> Report:
    """A report of these programs."""
    return Report(
        "1", "now", MACHINE, Setting("m", "auto", 1, "cpu", "float32", 2, window, 32, "auto", "p", 3), [*some]
    )
