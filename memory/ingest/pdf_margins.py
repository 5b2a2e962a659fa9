"""What stands on page after page above and below the text: running titles and page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from memory.ingest.pdf_lines import Line, bands

_EDGE_BANDS = 3
_FEWEST_PAGES = 3
_SHARE = 0.4
"""Of the pages: left and right pages may have running titles of their own."""
_PLACE = 12.0
"""Points by which the same title may stand higher or lower."""
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")

Mark = tuple[str, int]
"""A band's text with its numbers taken out, and its height on the page in steps of _PLACE."""


def without_margins(pages: Sequence[list[Line]]) -> list[list[Line]]:
    """The pages' lines without those that repeat, but for their numbers, at the same height of many pages."""
    edges = [_edges(page) for page in pages]
    counts = Counter(mark for page in edges for mark in {mark for mark, _ in page})
    needed = max(_FEWEST_PAGES, _SHARE * sum(1 for page in pages if page))
    out = []
    for page, marked in zip(pages, edges, strict=True):
        gone = {line for mark, band in marked if _near(mark, counts) >= needed for line in band}
        out.append([line for line in page if line not in gone])
    return out


def _edges(page: list[Line]) -> list[tuple[Mark, list[Line]]]:
    rows = list(bands(page))
    chosen = rows if len(rows) <= 2 * _EDGE_BANDS else rows[:_EDGE_BANDS] + rows[-_EDGE_BANDS:]
    marked = [((_bare(band), round(band[0].top / _PLACE)), band) for band in chosen]
    # A row of several numbers is a row of a table; one number alone is the page's.
    return [(mark, band) for mark, band in marked if len(band) == 1 or any(letter.isalpha() for letter in mark[0])]


def _bare(band: list[Line]) -> str:
    return _DIGITS.sub("#", " ".join(line.text.lower() for line in band))


def _near(mark: Mark, counts: Counter[Mark]) -> int:
    text, place = mark
    return sum(counts[text, place + step] for step in (-1, 0, 1))
