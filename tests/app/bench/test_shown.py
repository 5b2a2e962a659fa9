"""The table and the picture: all that was measured, and nothing that was not."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from hypothesis import given

from app.bench.plot import HEIGHT, WIDTH, plot
from app.bench.report import Program, Report, Speeds, Turn
from app.bench.table import NOTHING, heading, past, table, within
from tests.app.bench.reports import report, reports

SVG = "{http://www.w3.org/2000/svg}"


@given(reports())
def test_the_picture_is_whole_and_has_a_point_for_each_figure(made: Report) -> None:
    drawn = plot(made)
    assert drawn == plot(made)
    root = ElementTree.fromstring(drawn)
    turns = [turn for program in made.programs for turn in program.turns]
    figures = len(turns) + sum(turn.token_seconds is not None for turn in turns)
    circles = root.findall(f"{SVG}circle")
    assert len(circles) == figures
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= WIDTH
        assert 0 <= float(circle.attrib["cy"]) <= HEIGHT
    texts = {text.text for text in root.findall(f"{SVG}text")}
    assert all(f"{program.name} {program.version}" in texts for program in made.programs)
    assert not made.note or made.note in texts


@given(reports())
def test_a_row_has_a_cell_for_each_program_and_stands_for_a_figure(made: Report) -> None:
    lines = table(made).splitlines()
    assert "from start to ready" in lines[1]
    for line in lines[2:]:
        cells = line.rsplit(maxsplit=len(made.programs))[1:]
        assert len(cells) == len(made.programs)
        assert any(cell != NOTHING for cell in cells)
        assert all(cell == NOTHING or float(cell.replace(",", "")) >= 0 for cell in cells)


@given(reports())
def test_a_note_stands_under_what_was_measured(made: Report) -> None:
    lines = heading(made).split("\n")
    assert lines[2:] == ([made.note] if made.note else [])


def test_what_was_not_measured_is_not_there() -> None:
    bare = Program("ours", "1", 2.0)
    assert table(report(bare)).splitlines()[1:] == ["from start to ready, s   2.0"]
    theirs = Program("theirs", "2", 3.0, Speeds(1024, 200.0, None, 32, 50.0))
    measured = Program("ours", "1", 2.0, Speeds(1000, 300.0, None, 30, None))
    told = table(report(measured, theirs))
    assert "answers after 1,000 tokens" not in told
    assert "chat" not in told
    row = next(line for line in told.splitlines() if line.startswith("answers after 30 tokens"))
    assert row.split()[-2:] == [NOTHING, "50.0"]


def test_a_turn_counts_as_past_the_window_when_the_chat_before_it_was() -> None:
    turns = [Turn(n, 400 * n, 10, 0.001 * n, 0.01) for n in range(1, 6)]
    assert [turn.number for turn in within(turns, 1000)] == [2]
    assert [turn.number for turn in past(turns, 1000)] == [4, 5]
    told = table(report(Program("ours", "1", 2.0, None, turns)))
    assert next(line for line in told.splitlines() if "past its window: first token" in line).split()[-1] == "4.5"
