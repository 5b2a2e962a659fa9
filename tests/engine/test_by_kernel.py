"""Runs by_kernel_cases.py in a process of its own, where Triton interprets its kernels on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def run(marker: str) -> None:
    """Run the cases that `marker` selects; a failure shows the other process's report."""
    cases = Path(__file__).with_name("by_kernel_cases.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(cases), "-q", "-m", marker, "-p", "no:cacheprovider"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_engine_on_the_kernels_under_the_interpreter() -> None:
    run("not slow")


@pytest.mark.slow
def test_long_prompts_on_the_kernels_under_the_interpreter() -> None:
    run("slow")
