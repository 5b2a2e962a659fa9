"""What a person gets for bad input to the real program: one sentence, an exit code, nothing lost."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.app.test_cli import aios
from tests.stories.papers import write_encrypted, write_screenshot
from tests.stories.people import home


def test_no_network_and_no_model(tmp_path: Path) -> None:
    done = aios(tmp_path, "ask", "hello", PIP_NO_INDEX="1", PIP_FIND_LINKS="", PIP_EXTRA_INDEX_URL="")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(line.startswith("aios-chat: ") for line in done.stderr.strip().splitlines()), done.stderr
    assert "SmolLM2" in done.stderr
    assert not list((tmp_path / "models").glob("**/*.gguf"))


@pytest.mark.slow
def test_without_tesseract_pictures_are_read_all_the_same(tmp_path: Path) -> None:
    home(tmp_path / "home")
    picture = write_screenshot(tmp_path / "booking.png")
    python = tmp_path / "bin"
    python.mkdir()
    (python / "python3").symlink_to(sys.executable)
    done = aios(tmp_path / "home", "ingest", str(picture), "--json", PATH=str(python))
    assert done.returncode == 0, done.stderr
    assert [(job["name"], job["phase"]) for job in json.loads(done.stdout)] == [("booking.png", "done")]
    found = aios(tmp_path / "home", "search", "Gothenburg seat", PATH=str(python))
    assert "booking.png" in found.stdout


@pytest.mark.slow
def test_bad_files_and_a_good_one(tmp_path: Path) -> None:
    home(tmp_path / "home")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\n\x00\xff nothing follows")
    write_encrypted(tmp_path / "locked.pdf")
    (tmp_path / "good.md").write_text("# Harbour\n\nThe ferry leaves at noon.\n")
    names = ("empty.txt", "broken.pdf", "locked.pdf", "missing.pdf", "good.md")
    done = aios(tmp_path / "home", "ingest", *(str(tmp_path / name) for name in names))
    assert done.returncode == 1
    assert done.stdout.strip() == "good.md: 1 passage"
    sentences = done.stderr.strip().splitlines()
    assert len(sentences) == 4, done.stderr
    for name in names[:4]:
        assert any(name in sentence for sentence in sentences), (name, sentences)
    found = aios(tmp_path / "home", "search", "ferry", "--json")
    assert [p["title"] for p in json.loads(found.stdout)] == ["good.md"]


@pytest.mark.slow
def test_ask_through_pipes(tmp_path: Path) -> None:
    home(tmp_path)
    done = aios(tmp_path, "--temperature", "0", "--max-tokens", "24", "ask", "--json", "What is the capital of France?")
    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "Paris" in answer["answer"]
    chat = answer["chat"]
    more = aios(tmp_path, "--max-tokens", "24", "ask", "--quiet", "--chat", chat[:12], stdin="And of Italy?")
    assert more.returncode == 0, more.stderr
    assert more.stderr == ""
    rows = json.loads(aios(tmp_path, "chats", "--json").stdout)
    assert [(row["id"], row["messages"]) for row in rows] == [(chat, 4)]
    exported = aios(tmp_path, "export", chat).stdout
    assert "What is the capital of France?" in exported
    assert "And of Italy?" in exported
    assert os.listdir(tmp_path / "writers") == []
