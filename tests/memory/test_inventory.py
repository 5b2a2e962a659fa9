from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from memory import Memory
from memory.types import IngestReport, Message, SourceId, SourceKind

Turns = Callable[..., list[Message]]
Ingest = Callable[[Path], IngestReport]


def test_what_is_held_is_listed_measured_and_read_out_whole(
    memory: Memory, turns: Turns, ingest: Ingest, tmp_path: Path
) -> None:
    assert memory.sources() == []
    memory.remember(turns(["My dog is called Biscuit.", "Biscuit sounds lovely!"]))
    file = tmp_path / "menu.md"
    file.write_text("# Menu\n\nOn Friday the canteen serves mushroom risotto.\n")
    report = ingest(file)
    rows = {row.source.kind: row for row in memory.sources()}
    assert rows[SourceKind.DOCUMENT].source == report.source
    assert (rows[SourceKind.DOCUMENT].format, rows[SourceKind.DOCUMENT].passages) == ("markdown", report.passages)
    assert rows[SourceKind.CHAT].newest == turns(["", ""])[1].time
    texts = [passage.text for some in memory.passages() for passage in some]
    assert sorted(texts) == sorted(["My dog is called Biscuit.", "Biscuit sounds lovely!", file.read_text().strip()])
    assert {size.part: size.bytes > 0 for size in memory.sizes()} == {"text and words": True, "vectors": True}


def test_both_indexes_made_anew_find_what_they_found(memory: Memory, turns: Turns) -> None:
    memory.remember(turns([f"The {animal} lives in house {n}." for n, animal in enumerate(("fox", "owl", "hare"))]))
    before = memory.search("Where does the owl live?")
    told: list[tuple[int, int]] = []
    assert memory.rebuild(lambda progress: told.append((progress.done, progress.total))) == 3
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)
    assert memory.counts().unindexed == 0
    assert memory.search("Where does the owl live?") == before


def test_words_that_were_lost_from_the_index_are_found_again_after_a_rebuild(memory: Memory, turns: Turns) -> None:
    memory.remember(turns(["The code of the shed is 8812."]))
    with memory._store.passages._write() as db:
        db.execute("DELETE FROM terms")
    memory._store.drop_vectors()
    assert memory.search("8812") == []
    memory.rebuild(lambda _: None)
    assert [hit.passage.text for hit in memory.search("8812")] == ["The code of the shed is 8812."]


def test_a_title_made_of_a_message_goes_with_it(memory: Memory, turns: Turns) -> None:
    first, second = turns(["The zirconium key is under the mat, as it always was", "Noted."])
    title = "The zirconium key is under the mat,…"
    memory.remember([Message(m.chat, title, m.id, m.parent, m.role, m.text, m.time) for m in (first, second)])
    memory.forget(SourceId("chat-1"), [second.id])
    assert memory.sources()[0].source.title == title
    memory.forget(SourceId("chat-1"), [first.id])
    assert memory.sources()[0].source.title == ""
