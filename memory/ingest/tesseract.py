"""Tesseract: the better reader of pages in Latin and other spaced scripts, columns included."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memory.ingest.reading import OcrError, OcrText

if TYPE_CHECKING:
    from PIL.Image import Image

_OSD_SIDE = 2000
_GUESS = 25.0
"""Word confidence below which Tesseract reads letters into noise."""
_CJK_GAP = re.compile(
    r"(?<=[\u3001-\u3002\u3040-\u30ff\u3400-\u9fff\uff00-\uffef]) "
    r"(?=[\u3001-\u3002\u3040-\u30ff\u3400-\u9fff\uff00-\uffef])"
)


@dataclass(frozen=True, slots=True)
class Missing:
    """Tesseract cannot be used; `sentence` says why and what to do."""

    sentence: str


@lru_cache(maxsize=4)
def usable_languages(languages: str) -> tuple[str, ...] | Missing:
    """Those of `languages` ("eng+chi_sim") whose data are installed, or why there are none."""
    pytesseract = _library()
    try:
        there = set(pytesseract.get_languages(config=""))
    except (pytesseract.TesseractNotFoundError, FileNotFoundError):
        return Missing("Tesseract is not installed: run `apt-get install tesseract-ocr`.")
    wanted = [language for language in languages.split("+") if language]
    usable = tuple(language for language in wanted if language in there)
    if not usable:
        packages = " ".join(f"tesseract-ocr-{language.replace('_', '-')}" for language in wanted)
        return Missing(f"Tesseract has no data for the language {languages}: run `apt-get install {packages}`.")
    return usable


def recognise(picture: Image, languages: tuple[str, ...], seconds: float) -> OcrText:
    """Read an upright picture, column by column. Raises OcrError, also when `seconds` have passed."""
    pytesseract = _library()
    try:
        data = pytesseract.image_to_data(
            picture, lang="+".join(languages), output_type=pytesseract.Output.DICT, timeout=seconds
        )
    except pytesseract.TesseractError as error:
        raise OcrError(
            f"Tesseract could not read it ({str(error.message).strip()[:120]}): try a clearer picture."
        ) from error
    except RuntimeError as error:  # pytesseract's timeout
        raise OcrError(f"Tesseract gave up after {seconds:.0f} seconds: try a smaller picture.") from error
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


@dataclass(frozen=True, slots=True)
class Orientation:
    """`turns` times 90° clockwise set a picture upright. Pages of text give a `confidence` of 10 to 28; with little
    text it errs (180° at 1.45 was reported for an upright page): then read both ways and compare."""

    turns: int
    confidence: float


def orientation(picture: Image, seconds: float) -> Orientation:
    """How the picture lies, as Tesseract's orientation detection sees it; no turns when it cannot tell."""
    pytesseract = _library()
    small = picture.copy()
    small.thumbnail((_OSD_SIDE, _OSD_SIDE))
    try:
        osd = pytesseract.image_to_osd(small, output_type=pytesseract.Output.DICT, timeout=seconds)
    except (pytesseract.TesseractError, RuntimeError):  # "Too few characters" is an error to Tesseract
        return Orientation(0, 0.0)
    return Orientation(int(osd["rotate"]) // 90 % 4, float(osd["orientation_conf"]))


def _library() -> Any:
    """pytesseract, told to start Tesseract with one thread, whatever this process's own OpenMP is told.

    On two busy cores a page took 13 s with one thread, and more than a minute with four that spin against each other
    and the screen. The variable must not be this process's own: torch would obey it too.
    """
    import pytesseract

    pytesseract.pytesseract.environ = os.environ | {"OMP_THREAD_LIMIT": "1"}
    return pytesseract
