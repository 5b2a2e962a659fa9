"""The GPU path, measured: `python -m tests.bench.gpu [FILE]`, under 8 minutes on an H200's class, no downloads.

Kernels against torch and against a large copy, decoding eagerly and by CUDA graphs on random weights of real shapes,
its slope over 100 windows, weights in 8 and 4 bits, every page format, and the starter model's text where AIOS_STARTER
names its GGUF file.
FILE (gpu.json) is written after every part, so what was measured survives a part that fails; then the exit status is 1
and the file says why. A figure `*_of_bandwidth` is the time that the bytes take in the copy over the time it took.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch

from tests.bench.gpu_decode import decoding, fits, flat, formats, low_bit
from tests.bench.gpu_kernels import bandwidth, kernels
from tests.bench.gpu_machine import Gpu, Machine, Sizes
from tests.bench.gpu_text import greedy_text
from tests.bench.report import report

Part = Callable[[], dict[str, float]]


@dataclass(slots=True)
class Results:
    """What is written: what was measured on what, what was left out and why, and what failed."""

    file: Path
    machine: dict[str, str]
    figures: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, part: Part) -> None:
        """Run a part, keep its figures or why there are none, and write the file."""
        print(f"-- {name}", flush=True)
        try:
            self.figures |= part()
        except Exception as error:
            traceback.print_exc()
            self.failures[name] = f"{type(error).__name__}: {error}"
        self.write()

    def leave_out(self, name: str, why: str) -> None:
        """Say that a part was not run."""
        print(f"-- {name}: left out, {why}", flush=True)
        self.left_out[name] = why
        self.write()

    def write(self) -> None:
        """All of it, as JSON."""
        content = {name: value for name, value in asdict(self).items() if name != "file"}
        self.file.write_text(json.dumps(content, indent=1) + "\n")


def measure(machine: Machine, sizes: Sizes, file: Path, starter: Path | None) -> Results:
    """Every part, one after another."""
    results = Results(file, machine.names)
    results.add("bandwidth", lambda: {"bandwidth_gb_s": bandwidth(machine, sizes.copy_bytes) / 1e9})
    if results.failures:
        return results
    floor = results.figures["bandwidth_gb_s"] * 1e9
    results.add("kernels", partial(kernels, machine, sizes, floor))
    for shape in sizes.shapes:
        if fits(machine, shape, sizes):
            results.add(f"decode {shape.name}", partial(decoding, machine, shape, sizes, floor))
        else:
            results.leave_out(f"decode {shape.name}", f"{machine.free() / 2**30:.1f} GiB are free and it needs more")
    results.add("flat", partial(flat, machine, sizes))
    if fits(machine, sizes.shapes[-1], sizes):
        results.add("low-bit weights", partial(low_bit, machine, sizes, floor))
        results.add("formats", partial(formats, machine, sizes))
    else:
        results.leave_out("low-bit weights and formats", f"{sizes.shapes[-1].name} does not fit")
    if starter is None:
        results.leave_out("greedy text", "AIOS_STARTER names no file of the starter model")
    else:
        results.add("greedy text", partial(greedy_text, starter, machine.device, sizes.answer))
    return results


def main() -> int:
    """Measure, print, and return the exit status."""
    if not torch.cuda.is_available():
        print("torch sees no NVIDIA GPU on this machine, so there is nothing to measure here", file=sys.stderr)
        return 2
    given = os.environ.get("AIOS_STARTER", "")
    starter = Path(given) if Path(given).is_file() else None
    results = measure(Gpu(), Sizes(), Path(sys.argv[1] if len(sys.argv) > 1 else "gpu.json"), starter)
    report(**results.figures)
    for name, why in results.failures.items():
        print(f"{name} failed: {why}", file=sys.stderr)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
