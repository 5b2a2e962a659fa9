"""The text of a picture: set it straight, choose the reader, and say how sure the reader is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memory.ingest import rapid, tesseract
from memory.ingest.reading import OcrError, OcrText, is_cjk
from memory.ingest.straighten import straighten

if TYPE_CHECKING:
    from PIL.Image import Image

SECONDS = 30
"""For one picture, all attempts together; no further attempt begins after half of it."""
_DOUBTFUL = 80.0
"""Mean word confidence, in percent, below which a page may stand on its side or be in a script that Tesseract was not
asked for."""
_CERTAIN = 5.0
"""Confidence of the orientation from which a page is turned before it is read: read as it lies, it takes as long again,
and gives noise."""
_WORTH = 10.0
"""By how much RapidOCR must be surer than Tesseract: its scores run higher on the same text."""


def read_picture(picture: Image, languages: str) -> OcrText:
    """Read a grey picture, dark on white, however it is turned. Raises OcrError."""
    upright = straighten(picture)
    usable = tesseract.usable_languages(languages)
    if isinstance(usable, tesseract.Missing):
        return _without_tesseract(upright, usable)
    began = time.monotonic()
    lies = tesseract.orientation(upright, SECONDS / 4)
    certain = lies.confidence >= _CERTAIN
    if certain:
        upright = _turned(upright, lies.turns)
    best = tesseract.recognise(upright, usable, SECONDS - (time.monotonic() - began))
    if lies.turns and not certain and best.confidence < _DOUBTFUL and time.monotonic() - began < SECONDS / 2:
        other = _turned(upright, lies.turns)
        turned = tesseract.recognise(other, usable, SECONDS - (time.monotonic() - began))
        if turned.confidence > best.confidence:
            upright, best = other, turned
    if time.monotonic() - began < SECONDS / 2 and (best.confidence < _DOUBTFUL or is_cjk(best.text)):
        return _better(best, rapid.recognise(upright))
    return best


def _turned(picture: Image, turns: int) -> Image:
    return picture.rotate(-90 * turns, expand=True) if turns else picture


def _without_tesseract(picture: Image, missing: tesseract.Missing) -> OcrText:
    try:
        return rapid.recognise(picture)
    except OcrError as error:
        raise OcrError(f"{missing.sentence} {error}") from error


def _better(words: OcrText, lines: OcrText) -> OcrText:
    if is_cjk(lines.text) and lines.confidence >= words.confidence - _WORTH:
        return lines
    fuller = 2 * lines.letters >= words.letters
    return lines if fuller and lines.confidence >= words.confidence + _WORTH else words
