"""A chat held to its knowledge bases: other documents are as if they were not there; the chats always are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memory import Memory
from memory.types import IngestReport, Message, RecallRequest, SourceId

Ingest = Callable[[Path], IngestReport]
Turns = Callable[..., list[Message]]


def count(text: str) -> int:
    return len(text) // 4 + 1


@pytest.fixture
def house(memory: Memory, ingest: Ingest, turns: Turns, tmp_path: Path) -> dict[str, SourceId]:
    """Three boilers: in a base, outside it, and in a folder whose name only begins like the base's."""
    memory.remember(turns(["The boiler in the cabin has the serial number CHAT-1.", "Noted."]))
    found = {}
    for folder in ("house", "office", "house-old"):
        (tmp_path / folder / "deep").mkdir(parents=True)
        file = tmp_path / folder / "deep" / f"boiler {folder}.txt"
        file.write_text(f"The boiler of the {folder} has the serial number {folder.upper()}-9 on its plate.\n")
        found[folder] = ingest(file).source.id
    return found


QUESTIONS = (
    "What is the serial number of the boiler?",
    "What does the file say about the serial number of the boiler?",
    "What is the serial number in boiler office.txt?",
    "What did I say about the boiler?",
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_only_documents_of_the_base_and_the_chats_are_recalled(
    memory: Memory, house: dict[str, SourceId], tmp_path: Path, question: str
) -> None:
    inside = memory.documents_under([str(tmp_path / "house")])
    assert inside == {house["house"]}
    request = RecallRequest(question, SourceId("new"), budget_tokens=600, documents=inside)
    block = memory.recall(request, count).block
    assert "HOUSE-9" in block or "CHAT-1" in block
    assert "OFFICE-9" not in block
    assert "HOUSE-OLD-9" not in block


def test_without_a_base_everything_is_searched_as_before(memory: Memory, house: dict[str, SourceId]) -> None:
    block = memory.recall(RecallRequest(QUESTIONS[0], SourceId("new"), budget_tokens=600), count).block
    assert all(number in block for number in ("HOUSE-9", "OFFICE-9", "CHAT-1"))


def test_a_base_may_be_a_file_and_an_empty_one_leaves_the_chats(
    memory: Memory, house: dict[str, SourceId], tmp_path: Path
) -> None:
    file = tmp_path / "office" / "deep" / "boiler office.txt"
    assert memory.documents_under([str(file), str(tmp_path / "house") + "/"]) == {house["office"], house["house"]}
    request = RecallRequest(QUESTIONS[0], SourceId("new"), documents=memory.documents_under(["/nowhere"]))
    block = memory.recall(request, count).block
    assert "CHAT-1" in block
    assert "-9" not in block


def test_many_nearer_documents_outside_do_not_hide_the_one_inside(
    memory: Memory, ingest: Ingest, tmp_path: Path
) -> None:
    for number in range(70):
        (tmp_path / f"other-{number}.txt").write_text(f"How do I bleed the radiators upstairs? Hint {number}.\n")
        ingest(tmp_path / f"other-{number}.txt")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "heating.txt").write_text("We bleed each radiator with the small key until water comes.\n")
    ingest(tmp_path / "base" / "heating.txt")
    inside = memory.documents_under([str(tmp_path / "base")])
    request = RecallRequest("What does the file say on how to bleed the radiators?", SourceId("new"), documents=inside)
    assert "small key" in memory.recall(request, count).block
