"""How well and how fast the memory finds things: `python -m tests.bench.recall FOLDER`.

FOLDER holds question sets that nobody here wrote, by these names; what is missing is skipped with a sentence:
locomo_dev.json (long chats, each question names its evidence turns), cmrc2018_dev.json and xquad.en.json (paragraphs
with questions), cast2019_topics.json with cast2019_resolved.tsv (follow-up questions, as asked and standing alone).
Everything goes through `memory.Memory` with the shipped embedder. `--only` chooses parts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from tests.bench.recall import cast, documents, latency, locomo
from tests.bench.report import report

Figures = dict[str, float]
PARTS: dict[str, tuple[tuple[str, ...], Callable[[Path], Figures]]] = {
    "locomo": ((locomo.FILE,), locomo.measure),
    "cmrc": ((documents.CMRC,), documents.measure_cmrc),
    "xquad": ((documents.XQUAD,), documents.measure_xquad),
    "cast": (cast.FILES, cast.measure),
    "latency": ((), latency.measure),
}


def main() -> None:
    """Measure what is there, print the tables and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where the question sets are")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}; separated by commas")
    chosen = parser.parse_args()
    figures: Figures = {}
    for name in chosen.only.split(","):
        files, measure = PARTS[name]
        missing = [file for file in files if not (chosen.folder / file).is_file()]
        if missing:
            print(f"{name}: skipped, {' and '.join(missing)} not in {chosen.folder}.")
            continue
        began = time.perf_counter()
        figures |= measure(chosen.folder)
        print(f"{name} took {time.perf_counter() - began:.0f} s", flush=True)
    report(**figures)


if __name__ == "__main__":
    main()
