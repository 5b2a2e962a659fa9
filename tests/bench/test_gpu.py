"""The GPU benchmark runs to its end on tiny shapes, keeps what it has when a part fails, and needs a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.bench.gpu import Results
from tests.engine.tiny import write_llama

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_part_runs_to_its_end(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    write_llama(tmp_path / "starter", num_hidden_layers=1)
    file = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu_dry", str(file), str(tmp_path / "starter")],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text())
    assert result["failures"] == {}, done.stdout + done.stderr
    assert list(result["left_out"]) == ["decode huge"]
    wanted = [f"{name}_of_bandwidth" for name in ("paged_decode_64_batch2", "paged_prefill_32_after_64", "gated_1")]
    wanted += [f"{shape}_batch{n}_graph_of_bandwidth" for shape in ("tied", "normed") for n in (1, 2)]
    wanted += [
        "bandwidth_gb_s",
        "tied_peak_over_plan",
        "slope_100_windows",
        "kv_int8_tok_s",
        "weights_int4_of_bandwidth",
        "greedy_answers_equal",
    ]
    assert not set(wanted) - set(result["figures"])
    assert all(value > 0 for name, value in result["figures"].items() if not name.endswith("_mb"))


def test_a_part_that_fails_costs_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> dict[str, float]:
        raise RuntimeError("out of memory")

    results = Results(tmp_path / "gpu.json", {"gpu": "none"})
    results.add("first", lambda: {"a": 1.0})
    results.add("second", fails)
    results.leave_out("third", "it does not fit")
    results.add("fourth", lambda: {"b": 2.0})
    assert json.loads(results.file.read_text()) == {
        "machine": {"gpu": "none"},
        "figures": {"a": 1.0, "b": 2.0},
        "left_out": {"third": "it does not fit"},
        "failures": {"second": "RuntimeError: out of memory"},
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.gpu", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "torch sees no NVIDIA GPU on this machine, so there is nothing to measure here\n"
    assert not (tmp_path / "gpu.json").exists()
