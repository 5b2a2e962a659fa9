"""The first start on a machine: kernels are compiled by another process, which leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import kernels

ROOT = Path(kernels.__file__).parents[1]
BEGIN = "from kernels.cpu import ready; ready.compile_in_background(); "
MARK = "compiled-"
SOON = 60
"""Seconds that something may take which is done in a few where nobody else wants the cores."""


def started(tmp_path: Path, code: str, cache: Path) -> subprocess.Popen[str]:
    """A program that stands in another folder and is told by its own path alone where the kernels are."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env={**environment, "NUMBA_CACHE_DIR": str(cache)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def the_compiler(process: subprocess.Popen[str]) -> psutil.Process:
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        for child in psutil.Process(process.pid).children():
            if "kernels.cpu.ready" in child.cmdline():
                return child
        time.sleep(0.05)
    raise AssertionError("no process was started that compiles")


def kept(cache: Path) -> list[Path]:
    return list(cache.rglob("*.nbc"))


@pytest.mark.slow
def test_another_process_compiles_and_this_one_loads(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    count = "from kernels.cpu.packed_linear import _linear as f; print(sum(f.stats.cache_hits.values()))"
    code = (
        "assert ready.compiling(); assert ready.wait_compiled(250); assert ready.on_disk() and not ready.compiling(); "
    )
    with started(tmp_path, BEGIN + code + count, cache) as first:
        the_compiler(first)
        out, err = first.communicate()
    assert (first.returncode, out, err) == (0, "1\n", "")
    files = kept(cache)
    assert files
    with started(tmp_path, BEGIN + "assert not ready.compiling(); assert ready.wait_compiled(250)", cache) as second:
        out, err = second.communicate()
    assert (second.returncode, out, err) == (0, "", "")
    assert kept(cache) == files
    # Numba finds nothing there for kernels that stand in another folder.
    other = tmp_path / "other"
    shutil.copytree(ROOT / "kernels", other / "kernels")
    code = f"import sys; sys.path.insert(0, {str(other)!r}); from kernels.cpu import ready; print(ready.on_disk())"
    with started(tmp_path, code, cache) as elsewhere:
        assert elsewhere.communicate()[0] == "False\n"


@pytest.mark.slow
def test_files_that_were_cut_short_are_made_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with started(tmp_path, BEGIN + "assert ready.wait_compiled(250)", cache) as first:
        first.communicate()
    for kind in ("*packed_linear*.nbc", "*decode_layers*.nbi"):
        cut = list(cache.rglob(kind))
        assert cut
        for file in cut:
            file.write_bytes(b"")
    with started(tmp_path, BEGIN + "assert ready.wait_compiled(250); assert ready.on_disk()", cache) as second:
        out, err = second.communicate()
    assert (second.returncode, out) == (0, "")
    assert err.startswith("the CPU kernels that were kept are no good (")
    assert err.count("\n") == 1
    with started(tmp_path, BEGIN + "assert ready.wait_compiled(250)", cache) as third:
        assert third.communicate() == ("", "")


def test_kernels_that_cannot_be_compiled_are_not_waited_for(tmp_path: Path) -> None:
    """The other process fails, and so does this one."""
    code = (
        "import threading; from kernels.cpu import ready; ready._compiled_elsewhere = lambda: True; "
        "ready._run_each = lambda: 1 / 0; assert not ready.compiling(); ready.compile_in_background(); "
        "[t.join() for t in threading.enumerate() if t.name == 'kernels-compile']; "
        "assert not ready.compiling() and not ready.compiled()"
    )
    with started(tmp_path, code, tmp_path / "cache") as process:
        _, err = process.communicate(timeout=SOON)
    assert process.returncode == 0, err
    assert "cannot be compiled here" in err


@pytest.mark.parametrize("wait", [0.0, 6.0], ids=["while it starts", "while it compiles"])
def test_nothing_is_left_behind_by_a_kill(tmp_path: Path, wait: float) -> None:
    with started(tmp_path, BEGIN + "import time; time.sleep(250)", tmp_path / "cache") as process:
        child = the_compiler(process)
        time.sleep(wait)
        process.kill()
    child.wait(SOON)
    assert not child.is_running()


@pytest.mark.parametrize("wait", [2, 6])
def test_an_exit_waits_for_nothing_and_aborts_nothing(tmp_path: Path, wait: int) -> None:
    with started(tmp_path, BEGIN + f"import time; time.sleep({wait})", tmp_path / "cache") as process:
        child = the_compiler(process)
        out, err = process.communicate(timeout=SOON)
    assert (process.returncode, out, err) == (0, "", "")
    child.wait(SOON)
    assert not list((tmp_path / "cache").rglob(f"{MARK}*"))  # it was left off, not waited for


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_said_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    with started(tmp_path, BEGIN + "assert ready.wait_compiled(280)", tmp_path / "cache") as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (0, "")
    assert err.count("\n") == 1
    assert err.startswith("the CPU kernels are compiled anew at every start: ")
    assert err.endswith(" cannot be written\n")
