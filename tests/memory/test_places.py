"""Documents by the paths they stand at: copies, new versions, files that are gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memory import Memory
from memory.embed import Embedder
from memory.types import IngestReport

Ingest = Callable[[Path], IngestReport]


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is embedded from now on."""
    texts: list[str] = []
    passages = Embedder.passages

    def count(self: Embedder, some: list[str]) -> object:
        texts.extend(some)
        return passages(self, some)

    monkeypatch.setattr(Embedder, "passages", count)
    return texts


def titles(memory: Memory) -> set[str]:
    return {row.source.title for row in memory.documents()}


def test_a_changed_file_replaces_what_stood_at_its_path(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    file = tmp_path / "plan.txt"
    file.write_text("The meeting is on Monday in the old mill.")
    first = ingest(file)
    file.write_text("The meeting is on Friday in the new barn.")
    second = ingest(file)
    assert second.replaced == (first.source.id,)
    assert [row.source.id for row in memory.documents()] == [second.source.id]
    assert all("mill" not in hit.passage.text for hit in memory.search("meeting mill"))
    assert (memory.counts().passages, memory.counts().unindexed) == (1, 0)


def test_what_stands_at_another_path_as_well_stays(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    file, copy = tmp_path / "plan.txt", tmp_path / "copy.txt"
    file.write_text("The meeting is on Monday.")
    copy.write_text("The meeting is on Monday.")
    ingest(file)
    ingest(copy)
    file.write_text("The meeting is on Friday.")
    assert ingest(file).replaced == ()
    assert titles(memory) == {"plan.txt", "copy.txt"}
    assert {hit.passage.source.title for hit in memory.search("meeting Monday") if "Monday" in hit.passage.text} == {
        "copy.txt"
    }


def test_going_back_to_old_bytes_is_a_change_as_well(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    file = tmp_path / "plan.txt"
    for text in ("one two three", "four five six", "one two three"):
        file.write_text(text)
        ingest(file)
    assert [hit.passage.text for hit in memory.search("three six")] == ["one two three"]


def test_a_file_that_cannot_be_read_any_more_takes_nothing_along(
    memory: Memory, ingest: Ingest, tmp_path: Path
) -> None:
    file = tmp_path / "plan.txt"
    file.write_text("The meeting is on Monday.")
    ingest(file)
    file.write_bytes(bytes(range(256)))
    with pytest.raises(Exception, match="binary"):
        ingest(file)
    assert titles(memory) == {"plan.txt"}


def test_a_path_that_is_gone_is_forgotten_when_asked(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    file, copy = tmp_path / "plan.txt", tmp_path / "copy.txt"
    for path in (file, copy):
        path.write_text("The meeting is on Monday.")
        report = ingest(path)
    assert memory.forget_path(str(file)) == ()
    assert titles(memory) == {"copy.txt"}
    assert memory.forget_path(str(copy)) == (report.source.id,)
    assert memory.counts().passages == 0
    assert memory.forget_path(str(copy)) == ()


def test_files_seen_before_cost_no_embedding(
    memory: Memory, ingest: Ingest, tmp_path: Path, embedded: list[str]
) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text(f"Note number {number} about the harbour.")
        ingest(file)
    assert len(embedded) == 3
    assert all(ingest(file).already_known for file in files)
    assert len(embedded) == 3
    files[1].write_text("Another note.")
    ingest(files[1])
    assert len(embedded) == 4
