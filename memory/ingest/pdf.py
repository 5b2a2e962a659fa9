"""PDF page by page: the text layer where it is usable, OCR of the rendered page where it is not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memory.chunking import Section
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.ocr import OcrError, read_picture
from memory.types import DamagedFileError, NeedsPasswordError, NoTextError

if TYPE_CHECKING:
    from PIL.Image import Image

_DPI = 300
_PIXELS = 14_000_000
"""Budget of a rendered page: A3 at 300 dpi has 17 million; a poster gets fewer dots per inch instead of
more memory."""
_EMBEDDED_PIXELS = 200_000_000
"""Above this an embedded picture is not even decoded: it would cost gigabytes."""
_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "\u00ad": ""}
_CONTROLS = {chr(code): "" for code in range(32) if chr(code) not in "\t\n"}
_CLEANED = str.maketrans(_LIGATURES | _CONTROLS)
_FEW_LETTERS = 25
"""A page with fewer letters than this and a picture over half of it is a scan with a stamp or a page
number."""


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
            text, warning = _page(job, document, number, total)
            if text.strip():
                sections.append(Section(text, page=number))
            if warning:
                warnings.append(warning)
    if not sections:
        raise NoTextError(
            warnings[0] if len(warnings) == 1 else f"No page of {job.name} has text. {' '.join(warnings[:1])}".strip()
        )
    job.step("read", total, total)
    return Extract(Format.PDF, tuple(sections), total, tuple(warnings))


def _page(job: Job, document: Any, number: int, total: int) -> tuple[str, str]:
    """Text and warning of one page; a page that fails costs itself only."""
    job.step("read", number - 1, total)
    try:
        page = document[number - 1]
        text = page.get_text("text").translate(_CLEANED)
        if usable(text) and not _is_scan(page, text):
            return text, ""
        job.step("ocr", number - 1, total)
        picture = _render(page)
        if picture is None:
            return text, f"Page {number} of {job.name} holds a picture too large to read: scale it down."
        if _is_blank(picture):
            return text if usable(text) else "", ""
        seen = read_picture(picture, job.ocr_languages).text
    except OcrError as error:
        return "", f"Page {number} of {job.name} is a picture and was not read. {error}"
    except (RuntimeError, ValueError, MemoryError) as error:  # MuPDF's errors are RuntimeErrors
        return "", f"Page {number} of {job.name} is damaged and was not read ({_short(error)})."
    if _letters(seen) >= _letters(text) or not usable(text):
        return seen, "" if seen.strip() else f"Page {number} of {job.name} has no readable text."
    return text, ""


def usable(text: str) -> bool:
    """Whether a text layer says something: fonts without a Unicode map give replacement and private
    characters."""
    bare = "".join(text.split())
    if not bare:
        return False
    bad = sum(character == "\ufffd" or "\ue000" <= character <= "\uf8ff" for character in bare)
    letters = _letters(bare)
    # A handful of signs with hardly a letter is a font without a map, too; longer texts may be full of dots.
    return bad < 0.2 * len(bare) and letters > (0 if letters >= _FEW_LETTERS else 0.3 * len(bare))


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)


def _is_scan(page: Any, text: str) -> bool:
    if _letters(text) >= _FEW_LETTERS:
        return False
    area = abs(page.rect.width * page.rect.height) or 1.0
    covered = sum(abs((page.rect & info["bbox"]).get_area()) for info in page.get_image_info())
    return bool(covered > 0.5 * area)


def _render(page: Any) -> Image | None:
    """The page in grey within the pixel budget, or None when a picture on it is too large to decode."""
    from PIL import Image

    if any(info["width"] * info["height"] > _EMBEDDED_PIXELS for info in page.get_image_info()):
        return None
    inches = max(page.rect.width * page.rect.height / 72**2, 1e-6)
    dpi = max(1, min(_DPI, int(math.sqrt(_PIXELS / inches))))
    pixels = page.get_pixmap(dpi=dpi, colorspace="GRAY", alpha=False)
    return Image.frombytes("L", (pixels.width, pixels.height), pixels.samples)


def _is_blank(picture: Image) -> bool:
    from PIL import ImageStat

    return bool(ImageStat.Stat(picture).stddev[0] < 1.0)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__
