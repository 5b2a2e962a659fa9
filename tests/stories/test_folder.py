"""A folder of notes: read, read again, changed, watched, and what is gone from it."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories.people import home
from tests.stories.test_bad_input import aios

pytestmark = pytest.mark.slow


def titles(folder: Path, query: str) -> list[str]:
    return [passage["title"] for passage in json.loads(aios(folder, "search", query, "--json").stdout or "[]")]


def test_a_folder_is_followed_through_its_changes(tmp_path: Path) -> None:
    data, notes = tmp_path / "home", tmp_path / "notes"
    home(data)
    (notes / "node_modules").mkdir(parents=True)
    (notes / "kettle.txt").write_text("The kettle is blue.")
    (notes / "lamp.md").write_text("# Lamp\n\nThe lamp is green.\n")
    (notes / "node_modules" / "index.js").write_text("The kettle is a module.")
    first = aios(data, "ingest", str(notes))
    assert (first.returncode, sorted(first.stdout.splitlines())) == (0, ["kettle.txt: 1 passage", "lamp.md: 1 passage"])

    (notes / "kettle.txt").write_text("The kettle is red now.")
    (notes / "lamp.md").unlink()
    second = aios(data, "ingest", str(notes))
    assert second.returncode == 0
    assert "lamp.md is gone, and the memory keeps what it held" in second.stderr
    assert titles(data, "kettle blue red")[:1] == ["kettle.txt"]
    assert "blue" not in aios(data, "search", "kettle blue").stdout
    third = aios(data, "ingest", str(notes), "--forget-gone")
    assert f"{notes / 'lamp.md'}: forgotten" in third.stdout
    assert "lamp.md" not in titles(data, "green lamp")


def test_a_watched_folder(tmp_path: Path) -> None:
    data, notes = tmp_path / "home", tmp_path / "notes"
    home(data)
    notes.mkdir()
    (notes / "kettle.txt").write_text("The kettle is blue.")
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "ingest", str(notes), "--watch", "--forget-gone"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "AIOS_CHAT_HOME": str(data)},
        # A shell has what it runs in the background ignore SIGINT, and this test with it.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    try:
        assert any("watching" in line for line in lines)
        (notes / "lamp.txt").write_text("The lamp is green.")
        assert any(line == "lamp.txt: 1 passage\n" for line in lines)
        (notes / ".draft").write_text("Not this one.")
        (notes / "kettle.txt").unlink()
        assert any(line.endswith("kettle.txt: forgotten\n") for line in lines)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert titles(data, "kettle lamp") == ["lamp.txt"]
