from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pymupdf
import pytest

from memory import Memory
from memory.chunking import Chunk, Chunker, Layout, Section
from memory.types import (
    IngestCancelledError,
    IngestReport,
    MemoryLockedError,
    Message,
    Progress,
    RecallError,
    SourceId,
    SourceKind,
)

CHAT = SourceId("chat-1")
Turns = Callable[..., list[Message]]
Ingest = Callable[[Path], IngestReport]


def ignore(progress: Progress) -> None:
    pass


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def test_importing_the_room_is_light() -> None:
    code = "import sys, memory.types; print(sorted({'torch', 'chromadb', 'transformers', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_ingest_search_and_reingest(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    file = write(tmp_path / "pump.md", "# Pump\n\nThe serial number of the pump is QX-7719.\n")
    report = ingest(file)
    assert (report.kind, report.passages, report.already_known) == ("markdown", 1, False)
    hit = memory.search("pump serial")[0]
    assert hit.passage.source.title == "pump.md"
    assert hit.passage.place.line == 1
    assert file.read_text()[hit.passage.place.start : hit.passage.place.end] == hit.passage.text

    copy = write(tmp_path / "copy.md", file.read_text())
    again = ingest(copy)
    assert again.already_known
    assert again.source.id == report.source.id
    assert memory.counts().passages == 1
    assert [row.source.title for row in memory.documents()] == ["pump.md"]
    (both,) = [hit.passage.source for hit in memory.search("pump serial")]
    assert (both.origin, both.also) == (str(file), (str(copy),))
    assert memory.counts().unindexed == 0


def test_meaning_is_found_without_a_common_word(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    ingest(write(tmp_path / "a.txt", "The physician prescribed tablets against the headache."))
    ingest(write(tmp_path / "b.txt", "The tractor ploughed the field before the rain."))
    assert memory.search("doctor gave medicine")[0].passage.source.title == "a.txt"


def test_chinese_is_found_by_its_characters(memory: Memory, turns: Turns) -> None:
    memory.remember(turns(["显卡的显存是二十四吉字节。", "好的，我记住了。", "明天去图书馆还书。", "祝你顺利。"]))
    assert memory.search("显存多大")[0].passage.text == "显卡的显存是二十四吉字节。"


def test_remember_is_idempotent_and_follows_changes(memory: Memory, turns: Turns) -> None:
    messages = turns(["My dog is called Biscuit.", "What a lovely name!"])
    assert memory.remember(messages) == 2
    assert memory.remember(messages) == 0
    assert memory.counts().passages == 2
    first = messages[0]
    changed = Message(
        first.chat, first.chat_title, first.id, first.parent, first.role, "My dog is called Waffle.", first.time
    )
    assert memory.remember([changed]) == 1
    assert memory.search("dog")[0].passage.text == "My dog is called Waffle."
    assert memory.counts().passages == 2
    assert memory.counts().unindexed == 0


def test_kinds_are_told_apart(memory: Memory, ingest: Ingest, tmp_path: Path, turns: Turns) -> None:
    ingest(write(tmp_path / "boat.txt", "The boat is painted green."))
    memory.remember(turns(["My boat is painted red."]))
    assert {hit.passage.source.kind for hit in memory.search("boat")} == {SourceKind.CHAT, SourceKind.DOCUMENT}
    assert [hit.passage.source.kind for hit in memory.search("boat", kind=SourceKind.CHAT)] == [SourceKind.CHAT]


def test_reopening_finds_everything_again(tmp_path: Path, embedder_folder: Path, turns: Turns) -> None:
    folder = tmp_path / "memory"
    memory = Memory.open(folder, embedder_folder, threads=1)
    memory.remember(turns(["The cabin's password is maple-orchid-52."]))
    assert memory.wait_until_indexed(240)
    memory.close()
    memory = Memory.open(folder, embedder_folder, threads=1)
    assert memory.wait_until_indexed(240)
    assert "maple" in memory.search("secret word of the hut")[0].passage.text
    assert memory.counts().unindexed == 0
    memory.close()


def test_lost_vectors_are_made_again(tmp_path: Path, embedder_folder: Path, turns: Turns) -> None:
    folder = tmp_path / "memory"
    memory = Memory.open(folder, embedder_folder, threads=1)
    memory.remember(turns(["One about whales.", "Two about birds.", "Three about trains."]))
    assert memory.wait_until_indexed(240)
    memory.close()
    for file in (folder / "vectors").rglob("*"):
        if file.is_file():
            file.unlink()
    steps: list[Progress] = []
    memory = Memory.open(folder, embedder_folder, on_progress=steps.append, threads=1)
    assert memory.search("whales")[0].lexical == 1.0
    assert memory.wait_until_indexed(240)
    assert memory.counts().unindexed == 0
    assert steps[-1] == Progress("embed", 3, 3)
    memory.close()


def test_text_is_there_even_when_the_vectors_cannot_be(tmp_path: Path, embedder_folder: Path, turns: Turns) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "vectors").write_text("a file where a folder should be")
    memory = Memory.open(folder, embedder_folder, threads=1)
    memory.remember(turns(["The ferry leaves at noon."]))
    assert memory.wait_until_indexed(240)
    assert memory.search("ferry")[0].passage.text == "The ferry leaves at noon."
    assert memory.counts().problem
    memory.close()


def test_a_second_owner_is_refused_at_once(memory: Memory, tmp_path: Path, embedder_folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from memory import Memory; from memory.types import MemoryLockedError\n"
        "try:\n    Memory.open(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except MemoryLockedError as error:\n    print(error)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "memory"), str(embedder_folder)]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()
    assert "in use by another aios-chat" in said
    assert "\n" not in said
    with pytest.raises(MemoryLockedError):
        Memory.open(tmp_path / "memory", embedder_folder)


def test_a_missing_embedder_is_one_sentence_and_frees_the_folder(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RecallError, match="There is no embedder") as caught:
            Memory.open(tmp_path / "memory", tmp_path / "nowhere")
        assert not isinstance(caught.value, MemoryLockedError)


def test_forgotten_words_are_in_no_file(tmp_path: Path, embedder_folder: Path, turns: Turns) -> None:
    folder = tmp_path / "memory"
    memory = Memory.open(folder, embedder_folder, threads=1)
    memory.remember(turns(["My dog is called Xylobiscuit.", "A fine dog!", "I live in Quetzalville.", "Nice town."]))
    memory.remember(turns(["Unrelated talk about trains."], "chat-2"))
    file = write(tmp_path / "secret.txt", "The vault opens with zanzibarium.")
    document = memory.ingest(file, "secret.txt", str(file), ignore, lambda: False)
    assert memory.wait_until_indexed(240)

    assert memory.forget(CHAT, ["chat-1-m1"]) == 1
    assert not any("Xylobiscuit" in hit.passage.text for hit in memory.search("Xylobiscuit dog"))
    assert words_in_files(folder, "xylobiscuit") == []
    assert words_in_files(folder, "quetzalville")
    assert memory.forget(document.source.id) == 1
    assert memory.forget(CHAT) == 3
    assert [row.source.id for row in memory.documents()] == []
    memory.close()
    for word in ("xylobiscuit", "quetzalville", "zanzibarium", "secret.txt"):
        assert words_in_files(folder, word) == []
    memory = Memory.open(folder, embedder_folder, threads=1)
    assert memory.wait_until_indexed(240)
    assert (memory.counts().passages, memory.counts().chats, memory.counts().unindexed) == (1, 1, 0)
    memory.close()


def words_in_files(folder: Path, word: str) -> list[str]:
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes().lower()
            if word.encode() in data or word.encode("utf-16-le") in data:
                found.append(file.name)
    return found


def test_a_stopped_ingestion_leaves_nothing(memory: Memory, tmp_path: Path) -> None:
    file = write(tmp_path / "long.txt", "\n\n".join(f"Paragraph {n} about lamp {n}. " * 24 for n in range(36)))
    phases: list[str] = []

    def stop() -> bool:
        return phases.count("embed") >= 2

    with pytest.raises(IngestCancelledError):
        memory.ingest(file, "long.txt", str(file), lambda progress: phases.append(progress.phase), stop)
    assert memory.counts().passages == 0
    assert memory.documents() == []
    assert memory.search("lamp") == []


def test_a_search_runs_while_an_ingestion_embeds(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    ingest(write(tmp_path / "key.txt", "The spare key hangs behind the clock."))
    file = write(tmp_path / "long.txt", "\n\n".join(f"Paragraph {n} about lamp {n}. " * 24 for n in range(36)))
    embedding, searched = threading.Event(), threading.Event()

    def on_progress(progress: Progress) -> None:
        # The ingestion stands still in the middle of its work until the search has come back.
        if progress.phase == "embed" and 0 < progress.done < progress.total:
            embedding.set()
            assert searched.wait(120)

    worker = threading.Thread(target=memory.ingest, args=(file, "long.txt", str(file), on_progress, lambda: False))
    worker.start()
    assert embedding.wait(120)
    assert "behind the clock" in memory.search("where is the spare key")[0].passage.text
    assert memory.search("lamp 35")[0].passage.source.title == "long.txt"
    searched.set()
    worker.join()
    assert memory.counts().unindexed == 0


def test_hostile_queries_are_only_queries(memory: Memory, turns: Turns) -> None:
    memory.remember(turns(["Plain text."]))
    for query in ('"', "a AND (b OR", "NEAR(", "*", "body:", "'; DROP TABLE passages;", "\0", "-", "()", "🙂", " "):
        memory.search(query)
    assert memory.counts().passages == 1


def test_a_pdf_hit_names_its_page(memory: Memory, ingest: Ingest, tmp_path: Path) -> None:
    document = pymupdf.open()
    for text in ("The ferry leaves at noon.", "The harbour code is 4471."):
        document.new_page().insert_text((72, 72), text)
    document.save(tmp_path / "harbour.pdf")
    report = ingest(tmp_path / "harbour.pdf")
    assert (report.pages, report.passages) == (2, 2)
    assert memory.search("harbour code")[0].passage.place.page == 2


def test_times_are_those_of_the_messages(memory: Memory, turns: Turns) -> None:
    memory.remember(turns(["The lamp is lit."]))
    assert memory.search("lamp")[0].passage.time == 1_762_171_260.0


def test_cutting_a_long_file_is_stopped_between_its_sections(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "long.py"
    file.write_text("".join(f"def part_{n}() -> int:\n    return {n}\n\n\n" for n in range(40)))
    cut, stretches = list[Section](), Chunker.stretches

    def count(self: Chunker, section: Section, layout: Layout = Layout.PLAIN) -> Iterator[list[Chunk]]:
        cut.append(section)
        return stretches(self, section, layout)

    monkeypatch.setattr(Chunker, "stretches", count)
    with pytest.raises(IngestCancelledError):
        memory.ingest(file, file.name, str(file), lambda _: None, lambda: len(cut) == 3)
    assert len(cut) == 3
    assert memory.documents() == []
    memory.ingest(file, file.name, str(file), lambda _: None, lambda: False)
    assert len(cut) > 20
