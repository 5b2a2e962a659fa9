"""Favourites, quotes, file names, identifiers, numbers, and Chinese mixed with English, among talk of the like: what
of it recall delivers. tests/cases/own holds what was told and what is asked."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from memory import Memory
from memory.types import Message, RecallRequest, SourceId

CASES = Path(__file__).parents[1] / "cases" / "own"
HIT_RATE = 0.9
KIND_HIT_RATE = 0.75
DAY = 86_400.0


def test_what_people_keep_comes_back(memory: Memory) -> None:
    told = (CASES / "told.txt").read_text(encoding="utf-8").splitlines()
    chat = SourceId("told")
    memory.remember(
        Message(chat, "Notes", f"told-{number}", None, "user", text, 1_770_000_000.0 + DAY * number)
        for number, text in enumerate(told)
    )
    hits: dict[str, list[bool]] = defaultdict(list)
    missed: list[str] = []
    for row in (CASES / "asked.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        kind, asked, wanted = row.split("\t")
        recall = memory.recall(RecallRequest(asked, SourceId("asking"), budget_tokens=300), lambda text: len(text) // 3)
        hits[kind].append(wanted in recall.block)
        if wanted not in recall.block:
            missed.append(f"{asked}: {recall.decision.reason}")
    every = [hit for kind in hits.values() for hit in kind]
    assert sum(every) / len(every) >= HIT_RATE, missed
    assert all(sum(kind) / len(kind) >= KIND_HIT_RATE for kind in hits.values()), missed
