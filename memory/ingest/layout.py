"""The reading order of lines that were found one by one on a page: columns before rows, rows of tables whole."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_BAND = 1.2
"""White space between two bands of a page, in line heights; lines of one paragraph stand closer."""
_GUTTER = 0.8
"""White space between two columns, in line heights."""
_PROSE = 6.0
"""Median width of a column's lines in line heights: cells of a table are narrower, and stay in their row."""


@dataclass(frozen=True, slots=True)
class Box:
    """A line of text and where it stands, in pixels from the upper left corner."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


def in_reading_order(boxes: Sequence[Box]) -> str:
    """The text, line by line; a blank line between bands and columns.

    The recursive X-Y cut (Nagy and Seth 1984), gutters before bands as long as both sides are prose.
    """
    if not boxes:
        return ""
    if mostly_on_end(boxes):  # vertical writing: columns from the right
        return "\n".join(box.text for box in sorted(boxes, key=lambda box: (-box.right, box.top))) + "\n"
    height = statistics.median(box.bottom - box.top for box in boxes)
    return "\n\n".join("\n".join(lines) for lines in _cut(list(boxes), height)) + "\n"


def mostly_on_end(boxes: Sequence[Box]) -> bool:
    """Whether most lines run from top to bottom."""
    return 2 * sum(box.bottom - box.top > 1.5 * (box.right - box.left) for box in boxes) > len(boxes)


def _cut(boxes: list[Box], height: float) -> list[list[str]]:
    columns = _parts(boxes, lambda box: (box.left, box.right), _GUTTER * height)
    if len(columns) > 1 and all(_is_prose(column, height) for column in columns):
        return [lines for column in columns for lines in _cut(column, height)]
    bands = _parts(boxes, lambda box: (box.top, box.bottom), _BAND * height)
    if len(bands) > 1:
        return [lines for band in bands for lines in _cut(band, height)]
    return [_rows(boxes, height)]


def _parts(boxes: list[Box], span: Callable[[Box], tuple[float, float]], gap: float) -> list[list[Box]]:
    """The boxes cut wherever `gap` pixels of white run across all of them."""
    parts: list[list[Box]] = []
    reach = 0.0
    for box in sorted(boxes, key=span):
        start, end = span(box)
        if not parts or start - reach >= gap:
            parts.append([box])
            reach = end
        else:
            parts[-1].append(box)
            reach = max(reach, end)
    return parts


def _is_prose(column: list[Box], height: float) -> bool:
    return len(column) > 1 and statistics.median(box.right - box.left for box in column) >= _PROSE * height


def _rows(boxes: list[Box], height: float) -> list[str]:
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda box: box.top + box.bottom):
        middle = (box.top + box.bottom) / 2
        if rows and middle - statistics.mean((other.top + other.bottom) / 2 for other in rows[-1]) < height / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [" ".join(box.text for box in sorted(row, key=lambda box: box.left)) for row in rows]
