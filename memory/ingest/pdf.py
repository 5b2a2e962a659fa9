"""PDF page by page: the text layer where it is usable, OCR of the rendered page where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memory.chunking import Layout, Section
from memory.ingest.clean import clean
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.pdf_lines import Line, lines_of
from memory.ingest.pdf_text import Title, sections
from memory.ingest.scan import PageText, needs_ocr, read_scan
from memory.types import DamagedFileError, NeedsPasswordError, NoTextError


def read(job: Job) -> Extract:
    """Every page. Raises IngestError when the file is encrypted or damaged, or no page can be read."""
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
        layers: dict[int, list[Line]] = {}
        scans: list[Section] = []
        warnings: list[str] = []
        for number in range(1, total + 1):
            page = _page(job, document, number, total)
            if not isinstance(page, PageText):
                layers[number] = page
                continue
            if page.text.strip():
                scans.append(Section(page.text, page=number, confidence=page.confidence))
            if page.warning:
                warnings.append(page.warning)
        warnings += _attachments(document, job.name)
        found = sorted([*sections(layers, _outline(document)), *scans], key=lambda section: section.page or 0)
    if not found:
        raise NoTextError(
            warnings[0] if len(warnings) == 1 else f"No page of {job.name} has text. {' '.join(warnings[:1])}".strip()
        )
    job.step("read", total, total)
    return Extract(Format.PDF, tuple(found), total, tuple(warnings), Layout.MARKDOWN)


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


def _page(job: Job, document: Any, number: int, total: int) -> list[Line] | PageText:
    """The lines of a page's text layer, or what OCR reads of it; a page that fails costs itself only."""
    job.step("read", number - 1, total)
    try:
        page = document[number - 1]
        lines = lines_of(page)
        # A layer of nothing but hidden text counts for nothing: what can be seen is read from the picture.
        if lines and not needs_ocr(page, page.get_text("text")):
            return lines
        job.step("ocr", number - 1, total)
        return read_scan(job, page, number, "\n".join(line.text for line in lines))
    except (RuntimeError, ValueError, MemoryError) as error:  # MuPDF's errors are RuntimeErrors
        return PageText("", None, f"Page {number} of {job.name} is damaged and was not read ({_short(error)}).")


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
