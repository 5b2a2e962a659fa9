"""Tables of values: each row becomes one line that names its columns, so that any passage of it can be read alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from memory.chunking import Section
from memory.ingest.columns import lines
from memory.ingest.encoding import decode
from memory.ingest.extract import Extract, Format, Job
from memory.types import DamagedFileError, NoTextError

MOST_ROWS = 200_000
"""With something in them, of one sheet: about what two cores embed in a night."""
_MOST_AT_ALL = 2**20
"""Rows, blank ones with them: what a sheet can have."""
_DELIMITERS = "\t;|,:"
"""The later ones stand in words and numbers as well."""
_SAMPLE = 64 * 1024
_SAMPLE_ROWS = 200

Row = Sequence[str]


def section(rows: Iterable[Row], heading: str) -> tuple[Section, bool]:
    """A sheet from its first row on as a section, and whether it was cut at MOST_ROWS."""
    kept: list[Row] = []
    filled = 0
    cut = False
    for row in rows:
        some = any(cell.strip() for cell in row)
        cut = (some and filled == MOST_ROWS) or len(kept) == _MOST_AT_ALL
        if cut:
            break
        filled += some
        kept.append(row if some else ())
    return Section("\n".join(lines(kept)), line=1, heading=heading), cut


def read_csv(job: Job) -> Extract:
    """Values separated by commas, semicolons, tabs or bars. A row that goes over several lines counts as one."""
    job.step("read", 0, 1)
    text = decode(job.path.read_bytes(), job.name)
    if not text.strip():
        raise NoTextError(f"{job.name} holds nothing but white space: there is nothing to read in it.")
    csv.field_size_limit(2**24)
    try:
        read, cut = section(_rows(text, _delimiter(text[:_SAMPLE])), "")
    except csv.Error as error:
        raise DamagedFileError(f"{job.name} is not a table of values ({error}): save it again as CSV.") from error
    job.step("read", 1, 1)
    warnings = (f"Only the first {MOST_ROWS:,} rows of {job.name} were read.",) if cut else ()
    return Extract(Format.TABLE, (read,), warnings=warnings)


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text), delimiter=delimiter, doublequote=True, skipinitialspace=True)


def _delimiter(sample: str) -> str:
    """What cuts most rows into the same number of cells. csv.Sniffer takes what stands around quotes, and with it
    ways of quoting that garble the cells."""

    def agreement(delimiter: str) -> tuple[float, int]:
        widths = [len(row) for row in islice(_rows(sample, delimiter), _SAMPLE_ROWS) if row]
        widths = widths[:-1] if len(widths) > 2 else widths  # the sample may end inside a row
        common = max(set(widths), key=widths.count, default=1)
        return (widths.count(common) / len(widths), common) if common > 1 else (0.0, 1)

    best = max(_DELIMITERS, key=agreement)  # the first of equals
    return best if agreement(best)[0] else ","


def read_workbook(job: Job) -> Extract:
    """Sheets of an Excel or OpenDocument workbook, each with its name; a line's number is its row's."""
    from python_calamine import CalamineError, CalamineWorkbook

    job.step("read", 0, 1)
    sections: list[Section] = []
    warnings: list[str] = []
    try:
        with CalamineWorkbook.from_path(str(job.path)) as book:
            names = book.sheet_names
            for number, name in enumerate(names):
                job.step("read", number, len(names))
                try:
                    rows = book.get_sheet_by_name(name).iter_rows()
                except CalamineError as error:
                    warnings.append(f"Sheet {name} of {job.name} was not read ({_short(error)}).")
                    continue
                read, cut = section(([_shown(cell) for cell in row] for row in rows), name)
                sections.append(read)
                if cut:
                    warnings.append(f"Only the first {MOST_ROWS:,} rows of sheet {name} of {job.name} were read.")
    except CalamineError as error:
        raise DamagedFileError(f"{job.name} is damaged ({_short(error)}): save it again from its program.") from error
    job.step("read", 1, 1)
    return Extract(Format.TABLE, tuple(sections), warnings=tuple(warnings))


def _shown(value: object) -> str:
    """A cell as its sheet shows it: 3.0 is 3, midnight is no time of day."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value).removesuffix(" 00:00:00")


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
