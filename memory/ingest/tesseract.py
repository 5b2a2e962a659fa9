"""Tesseract: the better reader of pages in Latin and other spaced scripts, columns included."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from memory.ingest.reading import OcrError, OcrText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image

PROGRAM = "tesseract"
_OSD_SIDE = 2000
_GUESS = 25.0
"""Word confidence below which Tesseract reads letters into noise."""
_CJK_GAP = re.compile(
    r"(?<=[\u3001-\u3002\u3040-\u30ff\u3400-\u9fff\uff00-\uffef]) "
    r"(?=[\u3001-\u3002\u3040-\u30ff\u3400-\u9fff\uff00-\uffef])"
)
_TURN = re.compile(r"^Rotate: (\d+)", re.MULTILINE)
_SURE = re.compile(r"^Orientation confidence: ([\d.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Missing:
    """Tesseract cannot be used; `sentence` says why and what to do."""

    sentence: str


@lru_cache(maxsize=4)
def usable_languages(languages: str) -> tuple[str, ...] | Missing:
    """Those of `languages` ("eng+chi_sim") whose data are installed, or why there are none."""
    try:
        listed = subprocess.run([PROGRAM, "--list-langs"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Missing("Tesseract is not installed: run `apt-get install tesseract-ocr`.")
    there = set(listed.stdout.split("\n")[1:])
    wanted = [language for language in languages.split("+") if language]
    usable = tuple(language for language in wanted if language in there)
    if not usable:
        packages = " ".join(f"tesseract-ocr-{language.replace('_', '-')}" for language in wanted)
        return Missing(f"Tesseract has no data for the language {languages}: run `apt-get install {packages}`.")
    return usable


def recognise(picture: Image, languages: tuple[str, ...], seconds: float) -> OcrText:
    """Read an upright picture, column by column. Raises OcrError, also when `seconds` have passed."""
    table = _run(picture, ["-l", "+".join(languages), "tsv"], seconds)
    lines: dict[tuple[str, str, str], list[str]] = {}
    confidences: list[float] = []
    for row in csv.DictReader(io.StringIO(table, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE):
        word = row["text"] or ""
        if word.strip() and float(row["conf"]) >= _GUESS:
            lines.setdefault((row["block_num"], row["par_num"], row["line_num"]), []).append(word)
            confidences.append(float(row["conf"]))
    text, before = "", ("", "")
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
    small = picture.copy()
    small.thumbnail((_OSD_SIDE, _OSD_SIDE))
    try:
        said = _run(small, ["-l", "osd", "--psm", "0"], seconds)
    except OcrError:  # "Too few characters" is an error to Tesseract
        return Orientation(0, 0.0)
    turn, sure = _TURN.search(said), _SURE.search(said)
    return Orientation(int(turn[1]) // 90 % 4, float(sure[1])) if turn and sure else Orientation(0, 0.0)


def _run(picture: Image, arguments: Sequence[str], seconds: float) -> str:
    """What Tesseract writes about a picture, which it is given through a pipe, unpacked: packing 14 megapixels as PNG
    takes a second, and a file would outlive us."""
    pixels = io.BytesIO()
    picture.save(pixels, "PPM")
    command = [*_leash(), PROGRAM, "stdin", "stdout", *_resolution(picture), *arguments]
    try:
        done = subprocess.run(
            command,
            input=pixels.getbuffer(),
            capture_output=True,
            timeout=max(seconds, 0.1),
            check=False,
            # One thread, whatever this process's own OpenMP is told: on two busy cores a page took 13 s with one
            # thread, and more than a minute with four that spin against each other and the screen.
            env=os.environ | {"OMP_THREAD_LIMIT": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise OcrError(f"Tesseract gave up after {seconds:.0f} seconds: try a smaller picture.") from error
    except OSError as error:
        raise OcrError(f"Tesseract cannot be started ({error.strerror}): install it again.") from error
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise OcrError(f"Tesseract could not read it ({said[:120]}): try a clearer picture.")
    return done.stdout.decode("utf-8", "replace")


def _resolution(picture: Image) -> list[str]:
    """The picture's own dots per inch, where it says so; else Tesseract estimates them."""
    try:
        dpi = round(float(picture.info["dpi"][0]))
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return []
    return ["--dpi", str(dpi)] if 70 <= dpi <= 2400 else []


@lru_cache(maxsize=1)
def _leash() -> tuple[str, ...]:
    """What has Tesseract die with this process, also where that is killed and can kill nobody: `setpriv` of util-linux,
    which any Linux has. Nothing where there is none."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    leash = (setpriv, "--pdeathsig", "KILL")
    try:
        fits = subprocess.run([*leash, "true"], capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return leash if fits else ()
