"""Our speed on a CPU against llama.cpp and transformers: `python -m tests.bench.cpu [PART...]`.

The same GGUF file, the same threads (THREADS, 2), interleaved in ROUNDS (5) rounds in one run. llama.cpp is run by the
Python that AIOS_LLAMA_PYTHON names, which has llama-cpp-python installed; without it its lines are left out. Parts, all
unless some are named: speed, window, again, flat, python, ui. Each says in its module what it measures and how the
peers are used. Ends with one `name value` a line; `vs` is how many times as fast as the peer ours is.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from tests.bench.cpu import again, flat, peers, python_time, speed, ui, window
from tests.bench.cpu.setting import ROUNDS, THREADS, Figures
from tests.bench.report import report
from tests.models import starter_file

PARTS = {
    "speed": speed.measure,
    "window": window.measure,
    "again": again.measure,
    "flat": flat.measure,
    "python": python_time.measure,
    "ui": ui.measure,
}


def main(names: list[str]) -> None:
    """Measure the parts named, or all, and print the figures of all of them."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    if peers.LLAMA_PYTHON not in os.environ:
        print(f"{peers.LLAMA_PYTHON} is not set: nothing is measured against llama.cpp")
    file, figures = starter_file(), Figures()
    print(f"{os.cpu_count()} cores, {THREADS} threads, {ROUNDS} rounds", flush=True)
    for name in names or PARTS:
        began = time.perf_counter()
        print(f"\n{name}", flush=True)
        figures |= PARTS[name](file)
        print(f"{name} took {time.perf_counter() - began:.0f} s", flush=True)
    report(**figures)


if __name__ == "__main__":
    main(sys.argv[1:])
