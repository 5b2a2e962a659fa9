"""`aios-chat bench` as a person runs it, on a tiny model."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import psutil
import pytest

from app.bench.report import LeftOut, Machine, Program, Report, Setting, Speeds, Turn
from app.commands.bench import KERNELS_LATE
from tests.engine.tiny import write_llama

WINDOW, TURNS = 1024, 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_llama(folder)
    return folder


@pytest.fixture
def started(model: Path, tmp_path: Path) -> Iterator[list[str]]:
    """The command up to `bench`."""
    yield [sys.executable, "-m", "app", "--model", str(model), "--window", str(WINDOW), "--threads", "1", "bench"]
    assert not psutil.Process().children()


def environment(home: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("AIOS_")}
    return {**clean, "AIOS_CHAT_HOME": str(home)}


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def check_figures(saved: dict) -> None:
    """The saved JSON has the fields that it says it has, and nothing else."""
    assert saved.keys() == names_of(Report)
    assert saved["machine"].keys() == names_of(Machine)
    assert saved["setting"].keys() == names_of(Setting)
    for program in saved["programs"]:
        assert program.keys() == names_of(Program)
        assert program["speeds"] is None or program["speeds"].keys() == names_of(Speeds)
        assert all(turn.keys() == names_of(Turn) for turn in program["turns"])
    assert all(left.keys() == names_of(LeftOut) for left in saved["left_out"])


@pytest.mark.slow
def test_a_whole_benchmark(started: list[str], tmp_path: Path) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "picture.svg"
    command = [*started, "--turns", str(TURNS), "--json", str(figures), "--svg", str(picture)]
    done = subprocess.run(command, env=environment(tmp_path / "home"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    saved = json.loads(figures.read_text())
    check_figures(saved)
    assert saved["complete"]
    assert saved["note"] == ""
    assert [program["name"] for program in saved["programs"]] == ["aios-chat", "transformers"]
    ours, theirs = saved["programs"]
    assert [len(program["turns"]) for program in (ours, theirs)] == [TURNS, TURNS]
    assert ours["turns"][-1]["chat_tokens"] > WINDOW
    assert [t["chat_tokens"] for t in ours["turns"]] == [t["chat_tokens"] for t in theirs["turns"]]
    assert theirs["turns"][-1]["read_tokens"] > ours["turns"][-1]["read_tokens"]
    assert saved["left_out"][0]["name"] == "llama.cpp"
    ElementTree.parse(picture)
    for told in ("past its window: first token", f"saved {figures}", f"saved {picture}", "llama.cpp was left out"):
        assert told in done.stdout
    assert f"transformers: turn {TURNS} of {TURNS}" in done.stderr


@pytest.mark.slow
def test_a_first_start_is_told_wherever_the_figures_are(started: list[str], tmp_path: Path) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "picture.svg"
    command = [*started[:-1], "--weights", "int8", "bench", "--json", str(figures), "--svg", str(picture)]
    with subprocess.Popen(
        command,
        env={**environment(tmp_path / "home"), "NUMBA_CACHE_DIR": str(tmp_path / "no kernels")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,
    ) as running:
        assert running.stderr is not None
        before = list(itertools.takewhile(lambda line: "turn 1 of" not in line, running.stderr))
        running.send_signal(signal.SIGINT)
        told, _ = running.communicate()
    assert any(KERNELS_LATE in line for line in before)
    assert KERNELS_LATE in told
    assert json.loads(figures.read_text())["note"] == KERNELS_LATE
    assert KERNELS_LATE in {text.text for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")}


def as_in_a_terminal() -> None:
    """A shell has what it runs in the background ignore SIGINT, and these tests with it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow
def test_an_interrupted_one_keeps_what_was_measured(started: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [*started, "--turns", "1000"],
        env=environment(tmp_path / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "turn 3 of 1000" in line:
                running.send_signal(signal.SIGINT)
                break
        told, complaint = running.communicate()
    assert running.returncode == 130
    assert "interrupted" in complaint
    assert "Traceback" not in complaint
    (figures,) = (tmp_path / "home" / "bench").glob("*.json")
    saved = json.loads(figures.read_text())
    check_figures(saved)
    assert not saved["complete"]
    assert len(saved["programs"][0]["turns"]) >= 3
    assert f"saved {figures}" in told
    ElementTree.parse(figures.with_suffix(".svg"))
