"""Forgotten words leave the disk, also when the program dies between the delete and the scrub."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memory import Memory
from memory.passages import PassageDb
from memory.types import Message, RecallError, SourceId

Turns = Callable[..., list[Message]]
SAID = ("The code of the safe is pomegranate.", "Noted.", "And the bell?", "It rings.")


class Killed(BaseException):
    """The program is gone: nothing after it is run."""


def holding(folder: Path, word: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


def forget_message(memory: Memory, said: list[Message], file: Path) -> None:
    memory.forget(said[0].chat, [said[0].id])


def forget_chat(memory: Memory, said: list[Message], file: Path) -> None:
    memory.forget(said[0].chat)


def change_message(memory: Memory, said: list[Message], file: Path) -> None:
    memory.remember([replace(said[0], text="[deleted]")])


def forget_document(memory: Memory, said: list[Message], file: Path) -> None:
    (document,) = memory.documents()
    memory.forget(document.source.id)


def change_document(memory: Memory, said: list[Message], file: Path) -> None:
    file.write_text("The code is in no file any more.\n")
    memory.ingest(file, file.name, str(file), lambda _: None, lambda: False)


CHAT = (forget_message, forget_chat, change_message)


@pytest.mark.parametrize("act", [*CHAT, forget_document, change_document])
def test_a_kill_between_delete_and_scrub_leaves_the_scrub_due(
    memory: Memory,
    turns: Turns,
    tmp_path: Path,
    embedder_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Memory, list[Message], Path], None],
) -> None:
    said = turns(SAID)
    if act in CHAT:
        memory.remember(said)
    file = tmp_path / "code.txt"
    file.write_text("The code of the safe is pomegranate.\n")
    if act not in CHAT:
        memory.ingest(file, file.name, str(file), lambda _: None, lambda: False)

    def die(_db: PassageDb) -> None:
        shutil.copytree(tmp_path / "memory", tmp_path / "left")
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(PassageDb, "scrub", die)
        with pytest.raises(Killed):
            act(memory, said, file)
    assert holding(tmp_path / "left", "pomegranate")
    again = Memory.open(tmp_path / "left", embedder_folder, threads=1)
    assert again.wait_until_indexed(240)
    assert holding(tmp_path / "left", "pomegranate") == []
    again.close()


def test_the_document_of_a_changed_file_is_found_again_after_a_kill(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "code.txt"
    file.write_text("The code of the safe is pomegranate.\n")
    memory.ingest(file, file.name, str(file), lambda _: None, lambda: False)

    def die(_source: SourceId) -> int:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(memory, "forget", die)
        with pytest.raises(Killed):
            memory.forget_path(str(file))
    assert len(memory.forget_path(str(file))) == 1
    assert memory.documents() == []


def test_a_log_that_cannot_be_emptied_is_told_and_emptied_later(memory: Memory, turns: Turns, tmp_path: Path) -> None:
    said = turns(SAID)
    memory.remember(said)
    reader = sqlite3.connect(tmp_path / "memory" / "passages.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM passages").fetchall()
    memory._store.passages._writer.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(RecallError, match=r"^Another program reads .*\.$"):
        memory.forget(said[0].chat, [said[0].id])
    reader.close()
    memory.forget(said[0].chat, [said[0].id])
    assert holding(tmp_path / "memory", "pomegranate") == []


@pytest.mark.parametrize("act", CHAT)
def test_no_digest_outlives_its_turns_however_late_it_is_kept(
    memory: Memory,
    turns: Turns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Memory, list[Message], Path], None],
) -> None:
    said = [replace(message, text=message.text * 3) for message in turns(SAID)]
    memory.remember(said)
    forget = memory._store.forget

    def late(*which: object) -> int:
        assert memory.keep_digest(said[0].chat, [message.id for message in said], "", "") is not None
        return forget(*which)  # type: ignore[arg-type]

    monkeypatch.setattr(memory._store, "forget", late)
    act(memory, said, tmp_path)
    assert memory.digest_makers() == []
    assert holding(tmp_path / "memory", "pomegranate") == []
