"""`aios-chat memory`: one desk with the real memory and no model, seen through the commands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from app.commands import forget as forgetting
from app.commands import inventory
from app.commands.session import Progress
from app.desk import Desk
from app.host.stream import CallFailedError
from app.host.wire import ForgetRequest, SourceKind
from app.paths import Paths
from app.ports import DeskError
from app.settings import Settings, load_settings
from app.store.store import Store
from app.store.types import MessageStatus
from tests.app.searx import BRIDGE, DAM, search_engine
from tests.app.test_cli import aios, is_one_sentence
from tests.models import embedder_folder, models_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = load_settings(None, {}, environ={})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """A desk with a chat of two turns and a file that was read outside any chat."""
    embedder_folder()
    home = tmp_path_factory.mktemp("home")
    (home / "models").symlink_to(models_folder())
    paths = Paths(home, home / "settings.toml").create()
    store = Store.open(paths.chats_db)
    chat = store.create_chat()
    for question, answer in (
        ("My bicycle lock has the code 4719.", "Noted, zirconium."),
        ("And the bell?", "It rings."),
    ):
        asked = store.add_user_message(chat.id, question)
        store.finish_answer(store.begin_answer(chat.id, asked.id).id, answer, MessageStatus.COMPLETE)
    store.close()
    (home / "roof.md").write_text("# Roof\n\nThe new roof costs 4,200 thalers.\n")
    opened = Desk(SETTINGS, paths)
    await opened.open()
    await opened.own()
    opened.start_memory()
    await opened.memory_up()
    await opened.files.ingest(home / "roof.md")
    (home / "roof.md").unlink()
    await opened.indexed()
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def one_desk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command has the desk that is open, instead of one of its own."""

    @asynccontextmanager
    async def with_memory(_settings: Settings, _progress: Progress) -> AsyncIterator[Desk]:
        yield desk

    monkeypatch.setattr(inventory, "with_memory", with_memory)
    monkeypatch.setattr(forgetting, "with_memory", with_memory)


def holding(desk: Desk, word: str) -> list[Path]:
    """Files of the data folder that hold a word."""
    home = desk._paths.data
    files = [f for f in home.rglob("*") if f.is_file() and (home / "models") not in f.parents]
    return [file for file in files if word.encode() in file.read_bytes()]


async def test_sources_and_passages_are_listed_with_their_places(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await inventory.list_sources(SETTINGS, kind=None, json=False) == 0
    told = capsys.readouterr().out
    assert "roof.md" in told
    assert "4 passages" in told
    await inventory.export(SETTINGS, kind=None, json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["place"].partition(",")[0] for row in rows} == {
        "roof.md",
        "chat My bicycle lock has the code 4719.",
    }
    assert all(row["source_id"] and row["text"] for row in rows)
    await inventory.export(SETTINGS, kind=None, json=False)
    told = capsys.readouterr().out
    assert "**roof.md, Roof, line 1**" in told
    assert all(row["text"] in told for row in rows)


async def test_why_says_what_was_searched_where_and_what_came_of_it(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    await inventory.why(SETTINGS, "What is the code of my bicycle lock?", None, json=True)
    told = json.loads(capsys.readouterr().out)
    assert "4719" in told["delivered"][0]["passage"]["text"]
    assert "4719" in told["block"]
    assert told["reason"]
    assert told["found"] >= len(told["delivered"]) + len(told["passed_over"])
    assert all(row["reason"] and row["nearness"] >= 0 for row in told["passed_over"])
    assert 0 < told["block_tokens"] <= told["budget_tokens"]
    await inventory.why(SETTINGS, "hello", None, json=False)
    told = capsys.readouterr().out
    assert "greeting" in told
    assert "delivered nothing" in told
    with pytest.raises(DeskError, match="no such chat"):
        await inventory.why(SETTINGS, "What?", "no such chat", json=False)


async def test_what_the_web_was_searched_for_is_kept_listed_and_forgotten(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DeskError, match="set web_search"):
        await desk.search_web("How tall is the dam?")
    with search_engine() as engine:
        found = await desk.memory.search_web(engine.address, "How tall is the dam?")
    assert [(a.name, a.origin) for a in found] == [(d["title"], d["url"]) for d in (DAM, BRIDGE)]
    await inventory.list_sources(SETTINGS, kind=SourceKind.WEB, json=True)
    assert {row["id"] for row in json.loads(capsys.readouterr().out)} == {a.document for a in found}
    for attachment in found:
        assert await forgetting.forget(SETTINGS, attachment.origin, yes=True) == 0
    assert holding(desk, "221 metres") == []


async def test_the_memory_is_measured_and_rebuilt(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert await inventory.rebuild(SETTINGS, quiet=False) == 0
    assert capsys.readouterr().out == "5 passages indexed anew\n"
    await inventory.stats(SETTINGS, json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["documents"], told["chats"], told["passages"], told["unindexed"]) == (1, 1, 5, 0)
    assert all(size["bytes"] > 0 for size in told["sizes"])


@pytest.mark.parametrize("kind", ["file", "message", "chat"])
async def test_what_the_memory_could_not_forget_is_not_called_forgotten(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Whatever is asked for, and though nothing is left to wait for: the item rests in the outbox."""
    chat = desk._store.create_chat()
    said = desk._store.add_user_message(chat.id, "The passphrase is pomegranate.")
    desk._store.finish_answer(desk._store.begin_answer(chat.id, said.id).id, "Noted.", MessageStatus.COMPLETE)
    (tmp_path / "fruit.md").write_text("A pomegranate has many seeds.\n")
    await desk.files.ingest(tmp_path / "fruit.md")
    await desk.indexed()

    async def refuse(_request: ForgetRequest) -> int:
        raise CallFailedError("The memory could not do that: database is locked.", "OperationalError")

    monkeypatch.setattr("app.indexer.RETRY_SECONDS", 0)
    with monkeypatch.context() as locked:
        locked.setattr(desk._startup.host, "forget", refuse)
        what = {"file": "fruit.md", "message": said.id, "chat": chat.id}[kind]
        with pytest.raises(DeskError, match=r"^Not everything is forgotten yet.*: .*locked\.$"):
            await forgetting.forget(SETTINGS, what, yes=True)
    assert "forgotten" not in capsys.readouterr().out
    desk._store.recover()
    for rest in (chat.id, "fruit.md"):
        with suppress(DeskError):  # that one is gone from the chats
            await forgetting.forget(SETTINGS, rest, yes=True)
    assert "forgotten" in capsys.readouterr().out
    assert holding(desk, "pomegranate") == []


@pytest.mark.parametrize("word", ["thalers", "zirconium", "4719", "rings"])
async def test_what_is_forgotten_is_in_no_file_afterwards(
    desk: Desk, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    """A file, an answer, a question that named its chat, and a whole chat."""
    chat = (await desk.chats())[0]
    question, answer, *_ = (await desk.open_chat(chat.id)).messages
    what = {"thalers": "roof.md", "zirconium": answer.id, "4719": question.id, "rings": chat.id}[word]
    assert holding(desk, word)
    with pytest.raises(DeskError, match="--yes"):
        await forgetting.forget(SETTINGS, what, yes=False)
    assert await forgetting.forget(SETTINGS, what, yes=True) == 0
    assert "forgotten: " in capsys.readouterr().out
    assert holding(desk, word) == []


async def test_a_file_is_found_by_the_name_of_its_copy(
    desk: Desk, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("A persimmon is orange.\n")
        await desk.files.ingest(tmp_path / name)
        await desk.indexed()
    assert await forgetting.forget(SETTINGS, "two.txt", yes=True) == 0
    told = capsys.readouterr().out
    assert "one.txt" in told
    assert str(tmp_path / "two.txt") in told
    assert holding(desk, "persimmon") == []


async def test_what_is_not_there_cannot_be_forgotten(desk: Desk) -> None:
    with pytest.raises(DeskError, match="aios-chat memory list"):
        await forgetting.forget(SETTINGS, "no such thing", yes=True)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["memory", "dance"], "dance"),
        (["memory", "why", " "], "question"),
        (["memory", "list", "--kind", "movie"], "movie"),
        (["memory", "export", "--kind", "movie"], "movie"),
        (["memory", "forget"], "what"),
    ],
)
async def test_bad_input_is_one_sentence(tmp_path: Path, arguments: list[str], names: str) -> None:
    done = aios(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert is_one_sentence(done.stderr), done.stderr
    assert names.lower() in done.stderr.lower()
