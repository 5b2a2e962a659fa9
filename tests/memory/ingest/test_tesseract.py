"""Tesseract as a program that we start: given a picture by a pipe, and gone with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image

from memory.ingest import tesseract
from memory.ingest.reading import OcrError

_READER = """
import sys
from PIL import Image
from memory.ingest import tesseract
tesseract.PROGRAM = sys.argv[1]
tesseract._run(Image.new("L", (64, 64), "white"), [], 600)
"""


@pytest.mark.skipif(not tesseract._leash(), reason="no setpriv here: then Tesseract ends with the page it reads")
def test_it_dies_with_a_reader_that_is_killed(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    told = tmp_path / "told"
    os.mkfifo(told)
    slow.write_text(f"#!/bin/sh\necho $$ > {told}\nexec sleep 600\n")
    slow.chmod(0o755)
    reader = subprocess.Popen([sys.executable, "-c", _READER, str(slow)])
    try:
        started = psutil.Process(int(told.read_text()))  # waits until it is written
        assert started.is_running()
    finally:
        reader.send_signal(signal.SIGKILL)
        reader.wait()
    assert started.wait(timeout=30) is None


def test_a_program_that_fails_or_cannot_be_started_costs_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = Image.new("L", (64, 64), "white")
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho 'Error: no\n memory' >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setattr(tesseract, "PROGRAM", str(failing))
    with pytest.raises(OcrError, match=r"could not read it \(Error: no memory\): try a clearer picture\."):
        tesseract.recognise(picture, ("eng",), 20.0)
    monkeypatch.setattr(tesseract, "PROGRAM", str(tmp_path / "nothing"))
    with pytest.raises(OcrError, match="Tesseract c"):
        tesseract.recognise(picture, ("eng",), 20.0)


@pytest.mark.parametrize(
    ("dpi", "wanted"),
    [((300, 300), ["--dpi", "300"]), ((0, 0), []), (None, []), ((float("nan"), 1), []), ((1e9, 1), [])],
)
def test_a_resolution_is_told_only_where_it_can_be_one(dpi: object, wanted: list[str]) -> None:
    picture = Image.new("L", (64, 64))
    if dpi is not None:
        picture.info["dpi"] = dpi
    assert tesseract._resolution(picture) == wanted
