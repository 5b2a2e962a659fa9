"""A PDF page whose text layer says nothing: rendered within a budget of pixels, and read as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memory.ingest.extract import Job
from memory.ingest.ocr import read_picture
from memory.ingest.parts import PageText
from memory.ingest.reading import OcrError, doubt
from memory.ingest.textlayer import ENOUGH_LETTERS, letters, usable

if TYPE_CHECKING:
    from PIL.Image import Image

_DPI = 300
_COARSE_DPI = 130
"""Below this small print is lost: Tesseract wants letters 20 pixels high."""
_PIXELS = 14_000_000
"""Budget of a rendered page: A3 at 300 dpi has 17 million; a poster gets fewer dots per inch instead of
more memory."""
_EMBEDDED_PIXELS = 200_000_000
"""Above this an embedded picture is not even decoded: it would cost gigabytes."""


def needs_ocr(page: Any, layer: str) -> bool:
    """Whether a page is a scan, or its text layer (what PyMuPDF finds, uncleaned) is no text."""
    return not usable(layer) or _is_scan(page, layer)


def begin_scan(job: Job, page: Any, number: int, layer: str) -> Callable[[], PageText]:
    """Render a page that needs OCR; gives what reads it, on any thread. `layer` is what remains of its text layer,
    given back where that says more than the picture. A page that fails costs itself only."""
    fallback, name = layer if usable(layer) else "", f"Page {number} of {job.name}"
    if any(info["width"] * info["height"] > _EMBEDDED_PIXELS for info in page.get_image_info()):
        return lambda: PageText(fallback, None, f"{name} holds a picture too large to read: scale it down.")
    dpi = _dpi(page)
    picture = _render(page, dpi)
    if _is_blank(picture):
        return lambda: PageText(fallback)
    return lambda: _read(picture, dpi, job.ocr_languages, name, fallback)


def _read(picture: Image, dpi: int, languages: str, name: str, fallback: str) -> PageText:
    try:
        seen = read_picture(picture, languages)
    except OcrError as error:
        return PageText(fallback, None, f"{name} is a picture and was not read. {error}")
    if fallback and seen.letters < letters(fallback):
        return PageText(fallback)
    if not seen.text.strip():
        return PageText("", None, f"{name} has no readable text.")
    warning = doubt(name, seen)
    if dpi < _COARSE_DPI:
        warning = f"{name} is so large that it was read at {dpi} dots per inch: small print is lost."
    return PageText(seen.text, seen.confidence, warning)


def _is_scan(page: Any, text: str) -> bool:
    if letters(text) >= ENOUGH_LETTERS:
        return False
    area = abs(page.rect.width * page.rect.height) or 1.0
    covered = sum(abs((page.rect & info["bbox"]).get_area()) for info in page.get_image_info())
    return bool(covered > 0.5 * area)


def _dpi(page: Any) -> int:
    square_inches = max(page.rect.width * page.rect.height / 72**2, 1e-6)
    return max(1, min(_DPI, int(math.sqrt(_PIXELS / square_inches))))


def _render(page: Any, dpi: int) -> Image:
    from PIL import Image

    pixels = page.get_pixmap(dpi=dpi, colorspace="GRAY", alpha=False)
    return Image.frombytes("L", (pixels.width, pixels.height), pixels.samples)


def _is_blank(picture: Image) -> bool:
    from PIL import ImageStat

    return bool(ImageStat.Stat(picture).stddev[0] < 1.0)
