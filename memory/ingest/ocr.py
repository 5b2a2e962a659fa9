"""Tesseract: the text of a picture, and how sure of it the reader is."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from memory.types import RecallError

if TYPE_CHECKING:
    from PIL.Image import Image

_SECONDS_PER_PAGE = 120
_DOUBTFUL = 60.0
"""Mean word confidence below which a picture may stand on its side: Tesseract reads a page turned by 180°
with a character error rate of 82 %, and with 0 % once it is turned upright."""
_OSD_SIDE = 2000
_GUESS = 25.0
"""Word confidence below which Tesseract reads letters into noise."""
_CJK_GAP = re.compile(
    r"(?<=[\u3001-\u3002\u3040-\u30ff\u3400-\u9fff\uff00-\uffef]) "
    r"(?=[\u3001-\u3002\u3040-\u30ff\u3400-\u9fff\uff00-\uffef])"
)


class OcrError(RecallError):
    """Tesseract is missing, lacks a language, or gave up; one sentence with what to do."""


@dataclass(frozen=True, slots=True)
class OcrText:
    """What was read. `confidence` is the mean over words, 0..100; 0 when there are none."""

    text: str
    confidence: float


def read_picture(picture: Image, languages: str) -> OcrText:
    """Read an upright or turned picture. Raises OcrError."""
    usable = "+".join(_installed(languages))
    best = _recognise(picture, usable)
    if best.confidence < _DOUBTFUL and (angle := _rotation(picture)):
        turned = _recognise(picture.rotate(-angle, expand=True, fillcolor="white"), usable)
        if turned.confidence > best.confidence:
            return turned
    return best


@lru_cache(maxsize=4)
def _installed(languages: str) -> tuple[str, ...]:
    import pytesseract

    try:
        there = set(pytesseract.get_languages(config=""))
    except (pytesseract.TesseractNotFoundError, FileNotFoundError) as error:
        raise OcrError(
            "Tesseract is not installed, and pictures of text cannot be read without it: "
            "run `apt-get install tesseract-ocr`."
        ) from error
    wanted = [language for language in languages.split("+") if language]
    usable = tuple(language for language in wanted if language in there)
    if not usable:
        packages = " ".join(f"tesseract-ocr-{language.replace('_', '-')}" for language in wanted)
        raise OcrError(f"Tesseract has no data for the language {languages}: run `apt-get install {packages}`.")
    return usable


def _recognise(picture: Image, languages: str) -> OcrText:
    import pytesseract

    _one_thread_each()
    try:
        data = pytesseract.image_to_data(
            picture, lang=languages, output_type=pytesseract.Output.DICT, timeout=_SECONDS_PER_PAGE
        )
    except pytesseract.TesseractError as error:
        raise OcrError(
            f"Tesseract could not read it ({str(error.message).strip()[:120]}): try a clearer picture."
        ) from error
    except RuntimeError as error:  # pytesseract's timeout
        raise OcrError(f"Tesseract gave up after {_SECONDS_PER_PAGE} seconds: try a smaller picture.") from error
    lines: dict[tuple[int, int, int], list[str]] = {}
    confidences: list[float] = []
    places = zip(data["block_num"], data["par_num"], data["line_num"], strict=True)
    for place, word, confidence in zip(places, data["text"], data["conf"], strict=True):
        if word.strip() and float(confidence) >= _GUESS:
            lines.setdefault(place, []).append(word)
            confidences.append(float(confidence))
    text, before = "", (0, 0)
    for (block, paragraph, _), words in lines.items():
        text += ("\n" if text and (block, paragraph) != before else "") + _CJK_GAP.sub("", " ".join(words)) + "\n"
        before = (block, paragraph)
    return OcrText(text, sum(confidences) / len(confidences) if confidences else 0.0)


def _one_thread_each() -> None:
    """Keep Tesseract's OpenMP threads from spinning against each other and the screen.

    On two busy cores a page took 13 s with one thread and more than a minute with four. Torch must have read the
    variable's absence first: it would obey it too.
    """
    if hasattr(sys.modules.get("torch"), "set_num_threads"):
        os.environ.setdefault("OMP_THREAD_LIMIT", "1")


def _rotation(picture: Image) -> int:
    """Degrees clockwise to turn by, as Tesseract sees it; 0 when it cannot tell."""
    import pytesseract

    small = picture.copy()
    small.thumbnail((_OSD_SIDE, _OSD_SIDE))
    try:
        osd = pytesseract.image_to_osd(small, output_type=pytesseract.Output.DICT, timeout=_SECONDS_PER_PAGE)
    except (pytesseract.TesseractError, RuntimeError):  # "Too few characters" is an error to Tesseract
        return 0
    return int(osd["rotate"])
