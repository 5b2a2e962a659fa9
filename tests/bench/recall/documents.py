"""Paragraphs with questions (SQuAD's form): each paragraph is a file, and the file that answers must come first."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from memory.types import Progress, SourceId
from tests.bench.recall.opened import new_memory

CMRC = "cmrc2018_dev.json"
XQUAD = "xquad.en.json"


def measure_cmrc(folder: Path) -> dict[str, float]:
    """CMRC2018: Chinese."""
    return _measure(folder / CMRC, "cmrc")


def measure_xquad(folder: Path) -> dict[str, float]:
    """XQuAD: English."""
    return _measure(folder / XQUAD, "xquad")


def _measure(file: Path, name: str) -> dict[str, float]:
    data = json.loads(file.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
    first = among = questions = 0
    with new_memory() as memory, TemporaryDirectory(prefix="recall-bench-") as made:
        sources: list[SourceId] = []
        for number, paragraph in enumerate(paragraphs):
            path = Path(made) / f"{number}.txt"
            path.write_text(paragraph["context"], encoding="utf-8")
            sources.append(memory.ingest(path, path.name, str(path), _quiet, lambda: False).source.id)
        for source, paragraph in zip(sources, paragraphs, strict=True):
            for asked in paragraph["qas"]:
                hits = memory.search(asked["question"], 25)
                ranked = list(dict.fromkeys(hit.passage.source.id for hit in hits))
                questions += 1
                first += ranked[:1] == [source]
                among += source in ranked[:5]
    print(f"\n{file.name}: {len(paragraphs)} paragraphs, {questions} questions")
    print(f"the right paragraph first {100 * first / questions:.1f} %, among five {100 * among / questions:.1f} %")
    return {f"{name}_r1": 100 * first / questions, f"{name}_r5": 100 * among / questions}


def _quiet(progress: Progress) -> None:
    pass
