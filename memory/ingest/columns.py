"""Which row names the columns of those below it. A false name is worse than none: where it is in doubt, rows stand as
they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

_YEAR = re.compile(r"(?:19|20)\d\d(?:[/-]\d\d)?\Z")

Row = Sequence[str]


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """One line for each row, so that line and row number agree.

    A run of rows between blank ones is a table of its own when its first row says so, or goes on with the table
    before when its rows are like that one's. A header is named in each row below it. A row with a single value is a
    title or a note and stands as it is.
    """
    table = _Table()
    tidy = ([" ".join(cell.split()) for cell in row] for row in chain(rows, [()]))
    for cells, below in pairwise(tidy):
        yield table.line(cells, below)


class _Table:
    """The header in force, and what the rows below it are like."""

    def __init__(self) -> None:
        self._fresh = self._first = True
        self._start([])

    def _start(self, header: Row) -> None:
        self._header = header
        self._used = _columns(header)
        self._numbers: set[int] = set()
        self._words: set[int] = set()

    def line(self, cells: Row, below: Row) -> str:
        """`cells` as a line; `below` is the row after it, empty at the end."""
        filled = [cell for cell in cells if cell]
        if not filled:
            self._fresh = True
            return ""
        if self._fresh and len(filled) == 1:
            return filled[0]
        if self._fresh:
            begins, self._fresh = self._begins(cells, below), False
            if begins:
                self._start(cells)
            elif not self._goes_on(cells):
                self._start([])
            self._first = False
            if begins:
                return " | ".join(filled)
        self._used |= _columns(cells)
        self._numbers |= _values(cells)
        self._words |= _columns(cells) - _values(cells)
        return "; ".join(_named(self._header, cells))

    def _begins(self, cells: Row, below: Row) -> bool:
        """Whether `cells` names the columns below it."""
        columns, values = _columns(cells), _values(cells)
        if values:
            return _are_years(cells, values, below)
        if self._first or [*cells] == [*self._header]:
            return True
        if columns & _values(below):
            return True
        # Words above words, as the table before has them: the same table may go on after a gap.
        return bool(columns - self._used or columns & self._only_numbers())

    def _goes_on(self, cells: Row) -> bool:
        """Whether `cells` is sure to be a row of the table before: numbers where that one has them, or its first."""
        values = _values(cells)
        alike = bool(self._only_numbers() & values) or not (self._numbers or self._words)
        return bool(values) and alike and _columns(cells) <= self._used

    def _only_numbers(self) -> set[int]:
        return self._numbers - self._words


def _are_years(cells: Row, values: set[int], below: Row) -> bool:
    """Years in a row, each one after the other, above what is none: the names of columns."""
    years = [int(cells[number][:4]) for number in sorted(values) if _YEAR.match(cells[number])]
    steps = {after - before for before, after in pairwise(years)}
    counted = values & _columns(below)
    return (
        len(years) == len(values)
        and len(years) > 1
        and steps in ({1}, {-1})
        and bool(counted)
        and not all(_YEAR.match(below[number]) for number in counted)
    )


def _columns(cells: Row) -> set[int]:
    return {number for number, cell in enumerate(cells) if cell}


def _values(cells: Row) -> set[int]:
    return {number for number, cell in enumerate(cells) if cell and _is_value(cell)}


def _named(header: Row, cells: Row) -> Iterator[str]:
    for number, cell in enumerate(cells):
        if cell:
            name = header[number] if number < len(header) else ""
            yield f"{name}: {cell}" if name else cell


def _is_value(cell: str) -> bool:
    bare = cell.strip("€$£¥% +-").replace(",", "").replace(".", "").replace(":", "").replace("/", "").replace("-", "")
    return bare.isdigit()
