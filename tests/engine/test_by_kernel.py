"""Runs the cases of the engine on its kernels in a process of their own, where Triton interprets them on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


CASES = ("by_kernel_cases.py", "packed_by_kernel_cases.py", "static_decode_cases.py")


def run(name: str, marker: str) -> None:
    """Run the cases that `marker` selects; a failure shows the other process's report."""
    cases = Path(__file__).with_name(name)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(cases), "-q", "-m", marker, "-p", "no:cacheprovider"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CASES)
def test_the_engine_on_the_kernels_under_the_interpreter(name: str) -> None:
    run(name, "not slow")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_more_of_it_under_the_interpreter(name: str) -> None:
    run(name, "slow")
