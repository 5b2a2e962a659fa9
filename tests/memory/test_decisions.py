"""What people type, and whether anything is recalled for it: tests/cases/recall, measured half and open half alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import Memory
from memory.recall.fence import OPEN
from memory.types import RecallRequest
from tests.memory import decisions
from tests.memory.decisions import NEEDS_NOTHING, Outcome

RECALLED = frozenset({"fact", "favourite", "decision", "file", "date", "quote", "follow-up"})
FALSE_RECALLS = 0.02
MISSED_RECALLS = 0.03


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, embedder_folder: Path) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("decisions")
    memory = Memory.open(folder / "memory", embedder_folder, threads=2)
    assert memory.wait_until_indexed(240)
    decisions.fill(memory, folder)
    yield memory
    memory.close()


def wrong(found: list[Outcome], kinds: frozenset[str]) -> list[str]:
    return [f"{o.line.asked}: {o.recall.decision.reason}" for o in found if o.line.kind in kinds and not o.right]


@pytest.mark.slow
def test_few_false_recalls(filled: Memory) -> None:
    found = list(decisions.outcomes(filled, decisions.lines()))
    assert len(found) >= 300
    assert decisions.wrong_share(found, NEEDS_NOTHING) <= FALSE_RECALLS, wrong(found, NEEDS_NOTHING)


@pytest.mark.slow
def test_few_missed_recalls(filled: Memory) -> None:
    found = list(decisions.outcomes(filled, [line for line in decisions.lines() if line.kind in RECALLED]))
    assert len(found) >= 180
    assert decisions.wrong_share(found, RECALLED) <= MISSED_RECALLS, wrong(found, RECALLED)


@pytest.mark.slow
def test_what_is_visible_is_never_injected(filled: Memory) -> None:
    everything = decisions.messages()
    wanted = [line for line in decisions.lines() if line.kind in RECALLED and line.kind != "follow-up"][::9]
    for line in wanted:
        here = [m for m in everything if any(w.casefold() in m.text.casefold() for w in line.wanted)]
        visible = frozenset(m.id for m in here)
        recall = filled.recall(RecallRequest(line.asked, decisions.NOW, visible), lambda text: len(text) // 4)
        assert not visible & {hit.passage.place.message for hit in recall.hits}, line.asked
        assert not any(m.text in recall.block for m in here), line.asked


@pytest.mark.slow
def test_what_was_asked_for_and_is_not_there_is_said(filled: Memory) -> None:
    missing = [line for line in decisions.lines() if line.kind == "missing" and line.open]
    for line in missing:
        recall = decisions.asked(filled, line)
        assert not recall.hits, line.asked
        assert recall.block.startswith(OPEN), line.asked
        assert "nothing about this was found" in recall.block


def test_half_of_the_lines_are_only_measured() -> None:
    everything = decisions.lines()
    assert 0.45 <= sum(line.open for line in everything) / len(everything) <= 0.55
    assert len({line.asked for line in everything}) == len(everything)
