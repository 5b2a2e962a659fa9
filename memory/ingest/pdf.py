"""PDF page by page: the text layer where it is usable, OCR of the rendered page where it is not."""

from __future__ import annotations

from typing import Any

from memory.chunking import Section
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.scan import PageText, needs_ocr, read_scan
from memory.types import DamagedFileError, NeedsPasswordError, NoTextError

_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "\u00ad": ""}
_CONTROLS = {chr(code): "" for code in range(32) if chr(code) not in "\t\n"}
_CLEANED = str.maketrans(_LIGATURES | _CONTROLS)


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
        if document.needs_pass:
            raise NeedsPasswordError(f"{job.name} is encrypted: give its password.")
        total = document.page_count
        if total == 0:
            raise DamagedFileError(f"{job.name} has no pages: save it again from its program.")
        sections: list[Section] = []
        warnings: list[str] = []
        for number in range(1, total + 1):
            page = _page(job, document, number, total)
            if page.text.strip():
                sections.append(Section(page.text, page=number, confidence=page.confidence))
            if page.warning:
                warnings.append(page.warning)
    if not sections:
        raise NoTextError(
            warnings[0] if len(warnings) == 1 else f"No page of {job.name} has text. {' '.join(warnings[:1])}".strip()
        )
    job.step("read", total, total)
    return Extract(Format.PDF, tuple(sections), total, tuple(warnings))


def _page(job: Job, document: Any, number: int, total: int) -> PageText:
    """One page; a page that fails costs itself only."""
    job.step("read", number - 1, total)
    try:
        page = document[number - 1]
        layer = page.get_text("text")
        text = layer.translate(_CLEANED)
        if not needs_ocr(page, layer):
            return PageText(text)
        job.step("ocr", number - 1, total)
        return read_scan(job, page, number, text)
    except (RuntimeError, ValueError, MemoryError) as error:  # MuPDF's errors are RuntimeErrors
        return PageText("", None, f"Page {number} of {job.name} is damaged and was not read ({_short(error)}).")


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
