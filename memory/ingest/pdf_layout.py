"""From the lines of a page to its text: columns in the order they are read, rows of a table kept together,
paragraphs made whole."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memory.ingest.pdf_lines import Line, bands

_GUTTER = 0.7
"""Of the text's size: spaces within a justified line reach 0.6."""
_PROSE = 22
"""Letters in the middle line of a column of prose; a cell of a table has fewer. A CJK letter counts twice."""
_FEWEST_ROWS = 3
_DEEPEST = 6
_BULLET = re.compile(r"(?:[•◦▪‣·∙●○■□–—*-]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s")
_HYPHENS = "-\u2010"


@dataclass(frozen=True, slots=True)
class Piece:
    """A paragraph, a heading or a table of a page."""

    text: str
    top: float
    size: float = 0.0
    lines: int = 1


def pieces(lines: Sequence[Line]) -> list[Piece]:
    """The page's pieces in reading order."""
    return list(_ordered(list(lines), 0)) if lines else []


def _ordered(lines: list[Line], depth: int) -> Iterator[Piece]:
    if not lines:
        return
    gutter = _GUTTER * statistics.median(line.size for line in lines)
    plain: list[Line] = []
    for group, columns in _groups(list(bands(lines)), gutter):
        split = [_inside([line for band in group for line in band], column) for column in columns]
        prose = len(columns) > 1 and depth < _DEEPEST and _is_prose(split)
        if not prose and (len(columns) < 2 or len(group) < _FEWEST_ROWS or _is_list(split)):
            plain += [_joined(band) for band in group]
            continue
        yield from _paragraphs(plain)
        plain = []
        if prose:
            for column in split:
                yield from _ordered(column, depth + 1)
        else:
            yield _table(group, gutter)
    yield from _paragraphs(plain)


Interval = tuple[float, float]


def _groups(rows: list[list[Line]], gutter: float) -> Iterator[tuple[list[list[Line]], list[Interval]]]:
    """Runs of bands that have their gutters in common, with their columns."""
    group: list[list[Line]] = []
    columns: list[Interval] = []
    for row in rows:
        own = _merged([(line.left, line.right) for line in row], gutter)
        both = _merged([*columns, *own], gutter)
        if len(columns) == 1 and _beside(row, group[-1]):
            # Two columns whose lines stand half a line apart: neither of them begins a row of its own.
            own = _merged([*own, *((line.left, line.right) for line in group[-1])], gutter)
            both = own if len(own) > 1 and len(group) == 1 else both
        if group and not _fits(columns, own, both):
            early = _early(group, own, gutter) if len(columns) < len(own) else []
            if len(early) < len(group):
                yield group[: len(group) - len(early)], columns
            group = early
            both = _merged([*own, *((line.left, line.right) for band in early for line in band)], gutter)
        group.append(row)
        columns = both
    if group:
        yield group, columns


def _fits(columns: list[Interval], own: list[Interval], both: list[Interval]) -> bool:
    """Whether a row goes on with the columns above it. Of many columns one may close: a wide cell."""
    if len(columns) == 1:
        return len(own) == len(both) == 1
    return len(both) >= max(2, len(columns) - (len(columns) > 3))


def _beside(row: list[Line], above: list[Line]) -> bool:
    """Whether a row overlaps the one before it in height, and not in width."""
    apart = row[0].left > above[-1].right or row[-1].right < above[0].left
    return apart and row[0].top < above[-1].bottom - 0.2 * row[0].height


def _early(group: list[list[Line]], own: list[Interval], gutter: float) -> list[list[Line]]:
    """The last rows of a run of single lines that stand in one of the columns which begin below: one of two columns
    may begin higher."""
    early: list[list[Line]] = []
    for row in reversed(group):
        inside = any(left - gutter <= row[0].left and row[-1].right <= right + gutter for left, right in own)
        if not inside or len(early) >= _FEWEST_ROWS:
            break
        early.insert(0, row)
    return early


def _merged(intervals: list[Interval], gutter: float) -> list[Interval]:
    out: list[Interval] = []
    for left, right in sorted(intervals):
        if out and left - out[-1][1] < gutter:
            out[-1] = (out[-1][0], max(out[-1][1], right))
        else:
            out.append((left, right))
    return out


def _inside(lines: list[Line], column: Interval) -> list[Line]:
    return [line for line in lines if column[0] <= (line.left + line.right) / 2 <= column[1]]


def _is_prose(columns: list[list[Line]]) -> bool:
    """Whether each column reads on downwards rather than from one column to the next."""
    return all(len(column) >= 2 for column in columns) and all(
        statistics.median(_width(_joined(band).text) for band in bands(column)) >= _PROSE for column in columns
    )


def _width(text: str) -> int:
    return sum(2 if character >= "\u2e80" else 1 for character in text)


def _is_list(columns: list[list[Line]]) -> bool:
    """Whether the first of two columns holds bullets or numbers of the lines beside it."""
    marks = [line.text for line in columns[0]]
    return len(columns) == 2 and all(
        (len(mark) <= 2 and not mark.isalpha()) or mark.strip(".()").isdecimal() for mark in marks
    )


def _joined(band: list[Line]) -> Line:
    if len(band) == 1:
        return band[0]
    text = " ".join(line.text for line in band)
    top, bottom = min(line.top for line in band), max(line.bottom for line in band)
    widest = max(band, key=lambda line: len(line.text))
    return Line(text, band[0].left, top, band[-1].right, bottom, widest.size, all(line.fixed for line in band))


def _table(group: list[list[Line]], gutter: float) -> Piece:
    columns = _columns(group, gutter)
    rows: list[list[str]] = []
    for band in group:
        cells = [" ".join(line.text for line in _inside(band, column)).replace("|", "\\|") for column in columns]
        filled = [number for number, cell in enumerate(cells) if cell]
        if rows and len(filled) == 1 and filled[0] > 0 and rows[-1][filled[0]]:
            rows[-1][filled[0]] += f" {cells[filled[0]]}"  # the rest of a cell that goes over two lines
        elif filled:
            rows.append(cells)
    kept = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    lines = [f"| {' | '.join(row[number] for number in kept)} |" for row in rows]
    ruled = [lines[0], f"|{' --- |' * len(kept)}", *lines[1:]]
    return Piece("\n".join(ruled), group[0][0].top, lines=len(rows))


def _columns(group: list[list[Line]], gutter: float) -> list[Interval]:
    """Columns of a table, each reaching to the next: their borders are where at most a tenth of the rows has text."""
    steps = sorted(step for band in group for line in band for step in ((line.left, 1), (line.right, -1)))
    allowed = len(group) // 10
    borders = [float("-inf")]
    crossing, begun = 0, float("inf")
    for edge, change in steps:
        before, crossing = crossing, crossing + change
        if before <= allowed < crossing and edge - begun >= gutter:
            borders.append((begun + edge) / 2)
        elif crossing <= allowed < before:
            begun = edge
    return list(pairwise([*borders, float("inf")]))


def _paragraphs(lines: list[Line]) -> Iterator[Piece]:
    run: list[Line] = []
    gaps = [max(after.top - before.bottom, 0.0) for before, after in pairwise(lines)]
    usual = statistics.median(gaps) if gaps else 0.0
    for line in lines:
        if run and _begins(run, line, usual):
            yield _paragraph(run)
            run = []
        run.append(line)
    if run:
        yield _paragraph(run)


def _begins(run: list[Line], line: Line, usual: float) -> bool:
    """Whether a paragraph begins with `line`: more space above it, another size, a bullet, or an indent."""
    before = run[-1]
    gap, height = line.top - before.bottom, max(before.height, 1.0)
    return (
        gap > min(usual, 1.2 * height) + 0.4 * height
        or gap < -1.5 * height
        or abs(line.size - before.size) > 0.12 * before.size
        or bool(_BULLET.match(line.text))
        or line.fixed != before.fixed
        or (len(run) > 1 and _indented(run, line))
    )


def _indented(run: list[Line], line: Line) -> bool:
    """Whether `line` begins further right than the lines above, and the last of those was not full."""
    begins, ends = min(other.left for other in run), max(other.right for other in run)
    return line.left - begins > 0.8 * line.size and run[-1].right < ends - 2 * line.size


def _paragraph(run: list[Line]) -> Piece:
    if all(line.fixed for line in run) and len(run) > 1:
        left = min(line.left for line in run)
        width = max(statistics.median(max((line.right - line.left) / len(line.text), 0.1) for line in run), 0.1)
        text = "\n".join(" " * min(round((line.left - left) / width), 60) + line.text for line in run)
    else:
        text = run[0].text
        for line in run[1:]:
            text = _continued(text, line.text)
    sizes = [line.size for line in run]
    return Piece(text, run[0].top, statistics.median(sizes), len(run))


def _continued(text: str, more: str) -> str:
    """Two lines as one; a word broken at the line's end is made whole."""
    if len(text) > 1 and text[-1] in _HYPHENS and text[-2].isalpha() and more[:1].islower():
        return text[:-1] + more
    if text[-1:] >= "\u3000" and more[:1] >= "\u3000":
        return text + more  # Chinese and Japanese are written without spaces
    return f"{text} {more}"
