"""PDF page by page: the text layer where it is usable, OCR of the rendered page where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memory.chunking import Layout
from memory.ingest.clean import clean
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.parts import PageText, Part, read_part
from memory.ingest.pdf_lines import Line, lines_of
from memory.ingest.pdf_text import Title, sections
from memory.ingest.scan import begin_scan, needs_ocr
from memory.types import DamagedFileError, NeedsPasswordError, NoTextError

_FAULTS = (RuntimeError, ValueError, MemoryError)
"""MuPDF's errors are RuntimeErrors."""


def read(job: Job) -> Extract:
    """Every page; of those that need OCR only the first, and `left` names the others, which a job with these `pages`
    reads. Raises IngestError when the file is encrypted or damaged, or no page can be read."""
    import pymupdf

    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    try:
        document = pymupdf.open(str(job.path), filetype="pdf")
    except (RuntimeError, ValueError) as error:
        raise DamagedFileError(f"{job.name} is a damaged PDF: save it again from its program.") from error
    with document:
        _unlock(document, job)
        total = document.page_count
        if total == 0:
            raise DamagedFileError(f"{job.name} has no pages: save it again from its program.")
        if job.pages:
            part = _scans(job, document, job.pages)
            return Extract(Format.PDF, tuple(part.sections), total, tuple(part.warnings), Layout.MARKDOWN, part.left)
        layers, waiting, warnings = _layers(job, document)
        part = _scans(job, document, waiting)
        warnings += part.warnings
        warnings += _attachments(document, job.name)
        found = sorted([*sections(layers, _outline(document)), *part.sections], key=lambda section: section.page or 0)
    if not found and not part.left:
        raise NoTextError(
            warnings[0] if len(warnings) == 1 else f"No page of {job.name} has text. {' '.join(warnings[:1])}".strip()
        )
    return Extract(Format.PDF, tuple(found), total, tuple(warnings), Layout.MARKDOWN, part.left)


def _unlock(document: Any, job: Job) -> None:
    if document.needs_pass and not document.authenticate(job.password):
        wrong = "another password than the one given" if job.password else "a password"
        raise NeedsPasswordError(f"{job.name} is encrypted and needs {wrong}.")


def _outline(document: Any) -> dict[int, list[Title]]:
    titles: dict[int, list[Title]] = {}
    try:
        entries = document.get_toc(simple=True)
    except (RuntimeError, ValueError, IndexError):  # an outline that goes round in circles
        return {}
    for level, text, page in entries:
        if text.strip():
            titles.setdefault(page, []).append(Title(level, " ".join(clean(text).split())))
    return titles


def _attachments(document: Any, name: str) -> Iterator[str]:
    try:
        for attached in document.embfile_names():
            yield f"{name} carries the file {clean(attached)}, which was not read: save it and name it."
    except (RuntimeError, ValueError):
        return


def _layers(job: Job, document: Any) -> tuple[dict[int, list[Line]], list[int], list[str]]:
    """The lines of every page with a text layer, the numbers of those that wait for OCR, and a sentence for each page
    that is damaged: it costs itself only."""
    layers: dict[int, list[Line]] = {}
    waiting: list[int] = []
    warnings: list[str] = []
    total = document.page_count
    for number in range(1, total + 1):
        job.step("read", number - 1, total)
        try:
            page = document[number - 1]
            lines = lines_of(page)
            # A layer of nothing but hidden text counts for nothing: what can be seen is read from the picture.
            if lines and not needs_ocr(page, page.get_text("text")):
                layers[number] = lines
            else:
                waiting.append(number)
        except _FAULTS as error:
            warnings.append(_damaged(job, number, error))
    job.step("read", total, total)
    return layers, waiting, warnings


def _scans(job: Job, document: Any, numbers: Sequence[int]) -> Part:
    """Some of the pages that need OCR."""

    def begin(number: int) -> Callable[[], PageText]:
        try:
            page = document[number - 1]
            return begin_scan(job, page, number, "\n".join(line.text for line in lines_of(page)))
        except (*_FAULTS, IndexError) as error:
            damaged = PageText("", None, _damaged(job, number, error))
            return lambda: damaged

    return read_part(job, numbers, document.page_count, begin)


def _damaged(job: Job, number: int, error: BaseException) -> str:
    return f"Page {number} of {job.name} is damaged and was not read ({_short(error)})."


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
