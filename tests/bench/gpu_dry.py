"""`tests.bench.gpu` without a GPU: tiny shapes on the CPU under Triton's interpreter, run by test_gpu.py.

Its figures say nothing; that all of it runs to the end, and that kernels and torch agree, does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from engine.cache.formats.kv_format import KvFormat
from engine.model.config import QkNorm, RopeConfig
from engine.runner_graph import Step
from tests.bench.gpu import measure
from tests.bench.gpu_machine import Shape, Sizes

SHAPES = (
    Shape("tied", 32, 1, 4, 2, 16, 48, 64, True, RopeConfig()),
    Shape("huge", 2**16, 100, 4, 2, 16, 2**16, 64, True, RopeConfig()),
    Shape("normed", 32, 1, 4, 2, 16, 48, 64, False, RopeConfig(), QkNorm.HEAD),
)
SIZES = Sizes(
    SHAPES, copy_bytes=2**16, contexts=(64,), batches=(1, 2), chunk=32, page=16, quota=80, new=2, small_quota=80,
    windows=2, rounds=1, answer=2, formats=(KvFormat.AUTO, KvFormat.INT8),
)  # fmt: skip


class Plain:
    """No capture: a step is run as it is."""

    bytes = 0

    def __call__(self, step: Step) -> Step:
        return step


class Dry:
    """The CPU, by its own clock."""

    device, dtype = torch.device("cpu"), torch.float32

    @property
    def names(self) -> dict[str, str]:
        return {"gpu": "none"}

    def seconds(self, work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    def wait(self) -> None: ...

    def graphs(self) -> Plain:
        return Plain()

    def begin_peak(self) -> None: ...

    def peak(self) -> int:
        return 1

    def free(self) -> int:
        return 2**30


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure(Dry(), SIZES, Path(sys.argv[1]), Path(sys.argv[2]))
