"""Tables of values: each row becomes one line that names its columns, so that any passage of it can be read alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from memory.chunking import Section
from memory.ingest.encoding import decode
from memory.ingest.extract import Extract, Format, Job
from memory.types import DamagedFileError, NoTextError

MOST_ROWS = 200_000
"""Of one sheet: about what two cores embed in a night."""
_DELIMITERS = ",;\t|:"
_SAMPLE = 64 * 1024

Row = Sequence[str]


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """One line for each row, so that line and row number agree.

    A run of rows between blank ones is a table of its own; its first row of nothing but words is its header, and is
    named in each row below it. A row with a single value is a title or a note and stands as it is.
    """
    header: list[str] = []
    fresh = True
    for row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        filled = [cell for cell in cells if cell]
        if not filled:
            header, fresh = [], True
            yield ""
        elif fresh and len(filled) > 1 and not any(_is_value(cell) for cell in filled):
            header, fresh = cells, False
            yield " | ".join(filled)
        else:
            fresh = fresh and len(filled) == 1
            yield "; ".join(_named(header, cells)) if len(filled) > 1 or header else filled[0]


def _named(header: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    for number, cell in enumerate(cells):
        if cell:
            name = header[number] if number < len(header) else ""
            yield f"{name}: {cell}" if name else cell


def _is_value(cell: str) -> bool:
    bare = cell.strip("€$£¥% +-").replace(",", "").replace(".", "").replace(":", "").replace("/", "").replace("-", "")
    return bare.isdigit()


def section(rows: Iterable[Row], heading: str) -> tuple[Section, bool]:
    """A sheet as a section, and whether it was cut at MOST_ROWS."""
    some = iter(rows)
    text = "\n".join(lines(islice(some, MOST_ROWS)))
    return Section(text, line=1, heading=heading), next(some, None) is not None


def read_csv(job: Job) -> Extract:
    """Values separated by commas, semicolons, tabs or bars. A row that goes over several lines counts as one."""
    job.step("read", 0, 1)
    text = decode(job.path.read_bytes(), job.name)
    if not text.strip():
        raise NoTextError(f"{job.name} holds nothing but white space: there is nothing to read in it.")
    csv.field_size_limit(2**24)
    try:
        rows = list(islice(csv.reader(io.StringIO(text), _dialect(text[:_SAMPLE])), MOST_ROWS + 1))
    except csv.Error as error:
        raise DamagedFileError(f"{job.name} is not a table of values ({error}): save it again as CSV.") from error
    read, cut = section(rows, "")
    job.step("read", 1, 1)
    warnings = (f"Only the first {MOST_ROWS:,} rows of {job.name} were read.",) if cut else ()
    return Extract(Format.TABLE, (read,), warnings=warnings)


def _dialect(sample: str) -> type[csv.Dialect]:
    try:
        return csv.Sniffer().sniff(sample, delimiters=_DELIMITERS)
    except csv.Error:
        return csv.excel


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
                    sheet = book.get_sheet_by_name(name)
                    rows = sheet.to_python(skip_empty_area=True, nrows=MOST_ROWS + 1)
                except CalamineError as error:
                    warnings.append(f"Sheet {name} of {job.name} was not read ({_short(error)}).")
                    continue
                above: list[list[object]] = [[]] * (sheet.start[0] if sheet.start else 0)
                read, cut = section(([_shown(cell) for cell in row] for row in [*above, *rows]), name)
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
