"""Runs the kernel cases in a process of their own: under the interpreter, and on the GPU where there is one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
CASES = sorted(str(file) for file in Path(__file__).parent.glob("*_cases.py"))


def run(marker: str, interpret: str) -> None:
    """Run the cases that `marker` selects; a failure shows the other process's report."""
    command = [sys.executable, "-m", "pytest", *CASES, "-q", "-m", marker, "-p", "no:cacheprovider"]
    environment = os.environ | {"TRITON_INTERPRET": interpret, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_kernel_cases_under_the_interpreter():
    run("not slow", interpret="1")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_wide_grid_under_the_interpreter():
    run("slow", interpret="1")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.timeout(1800)
def test_all_cases_on_the_gpu():
    run("slow or not slow", interpret="0")
