"""How well pictures of text are read, against their true texts: `python -m tests.bench.ocr FOLDER`.

FOLDER holds files under the names of `TRUTHS`. A figure is the character error rate in percent: the edit distance over
the length of the truth, runs of white space counted as one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from memory.ingest.extract import Job
from memory.ingest.readers import read_file
from memory.types import RecallError
from tests.bench.report import report

TRUTHS = {
    "phototest_0": ("tesseract/phototest.tif", "tesseract/phototest.txt"),
    "phototest_90": ("tesseract/phototest-rotated-R.png", "tesseract/phototest.txt"),
    "phototest_180": ("tesseract/phototest-rotated-180.png", "tesseract/phototest.txt"),
    "phototest_270": ("tesseract/phototest-rotated-L.png", "tesseract/phototest.txt"),
    "linn": ("ocrmypdf/linn.png", "ocrmypdf/linn.txt"),
    "linn_pdf": ("ocrmypdf/linn.pdf", "ocrmypdf/linn.txt"),
    "skew": ("ocrmypdf/skew.pdf", "ocrmypdf/linn.txt"),
    "rotated_skew": ("ocrmypdf/rotated_skew.pdf", "ocrmypdf/linn.txt"),
    "8071": ("tesseract/8071_093.3B.tif", "tesseract/8071_093.3B.txt"),
    "8087": ("tesseract/8087_054.3B.tif", "tesseract/8087_054.3B.txt"),
    "eurotext": ("tesseract/eurotext.tif", "tesseract/eurotext.txt"),
}
"""Figure: picture, true text."""


def error_rate(read: str, truth: str) -> float:
    """Edit distance over the length of the truth, in percent."""
    ours, wanted = " ".join(read.split()), " ".join(truth.split())
    columns = np.arange(len(wanted) + 1)
    codes = np.array([ord(character) for character in wanted])
    row = columns
    for number, character in enumerate(ours, start=1):
        below = np.minimum(row[:-1] + (codes != ord(character)), row[1:] + 1)
        ahead = np.concatenate(([number], below)) - columns
        row = np.minimum.accumulate(ahead) + columns  # insertions along the row
    return 100.0 * float(row[-1]) / max(1, len(wanted))


def main(folder: Path) -> None:
    """Print the table, and one figure a line."""
    figures: dict[str, float] = {}
    print(f"{'picture':36} {'CER %':>7} {'sure %':>7} {'seconds':>8}")
    for name, (picture, truth) in TRUTHS.items():
        began = time.perf_counter()
        text, sure = _read(folder / picture)
        seconds = time.perf_counter() - began
        wanted = (folder / truth).read_text(encoding="utf-8", errors="replace")
        figures[f"cer_{name}"] = error_rate(text, wanted)
        print(f"{picture:36} {figures[f'cer_{name}']:7.2f} {sure:7.1f} {seconds:8.1f}", flush=True)
    report(**figures)


def _read(file: Path) -> tuple[str, float]:
    try:
        extract = read_file(Job(file, file.name, "eng", lambda _progress: None, lambda: False))
    except RecallError as error:
        print(error)
        return "", 0.0
    sure = [section.confidence for section in extract.sections if section.confidence is not None]
    return "\n".join(section.text for section in extract.sections), sum(sure) / max(1, len(sure))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
