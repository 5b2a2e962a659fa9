"""Several programs on one data folder, and programs that are killed."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from importlib.resources import files

import pytest

from app.host.wire import Passage, SourceKind
from app.ids import DocumentId
from app.store import db
from app.store.store import Store, StoreError, acquire_owner
from app.store.types import Attachment, MessageStatus, OutboxKind


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


STREAMS = """
    import sys
    from pathlib import Path
    from app.store.store import Store

    store = Store.open(Path(sys.argv[1]))
    chat = store.create_chat()
    asked = store.add_user_message(chat.id, "tell me a story")
    answer = store.begin_answer(chat.id, asked.id)
    text = ""
    for n in range(10**9):
        text += f"word{n} "
        store.journal_answer(answer.id, text)
        print(chat.id, answer.id, n, flush=True)
"""


def read_until(process: subprocess.Popen[str], words: int) -> tuple[str, str, int]:
    for line in process.stdout:
        chat, answer, n = line.split()
        if int(n) >= words:
            return chat, answer, int(n)
    raise AssertionError("the program ended by itself")


@pytest.mark.parametrize("words", [0, 7, 60])
def test_kill_9_keeps_the_question_and_what_was_journalled(tmp_path, words):
    with start(STREAMS, tmp_path / "chats.db") as process:
        chat, answer, shown = read_until(process, words)
        store = Store.open(tmp_path / "chats.db")
        assert store.recover() == [], "an answer that streams in a living program is left alone"
        assert store.message(answer).status is MessageStatus.STREAMING
        assert f"word{shown} " in store.message(answer).text, "and can be read meanwhile"
        process.send_signal(signal.SIGKILL)
    (lost,) = store.recover()
    assert (lost.id, lost.status) == (answer, MessageStatus.INTERRUPTED)
    assert lost.text.split()[: shown + 1] == [f"word{n}" for n in range(shown + 1)]
    asked = store.path(chat)[0]
    assert [m.text for m in store.path(chat)] == ["tell me a story", lost.text]
    assert [(i.kind, i.key) for i in store.pending()] == [
        (OutboxKind.REMEMBER, asked.id),
        (OutboxKind.REMEMBER, answer),
    ]
    assert store.recover() == []
    assert list((tmp_path / "writers").iterdir()) == []
    store.close()


WRITES = """
    import sys
    from pathlib import Path
    from app.store.store import Store
    from app.store.types import MessageStatus

    sys.stdin.readline()
    store = Store.open(Path(sys.argv[1]))
    chat = store.create_chat(sys.argv[2])
    for n in range(40):
        asked = store.add_user_message(chat.id, f"{sys.argv[2]} asks {n}")
        answer = store.begin_answer(chat.id, asked.id)
        store.journal_answer(answer.id, "half")
        store.finish_answer(answer.id, f"{sys.argv[2]} hears {n}", MessageStatus.COMPLETE)
        if n % 10 == 0:
            store.delete_chat(store.create_chat().id)
    store.close()
"""


def test_programs_that_start_and_write_at_once(tmp_path):
    names = ["one", "two", "three"]
    programs = [start(WRITES, tmp_path / "chats.db", name) for name in names]
    for program in programs:
        program.stdin.write("go\n")
        program.stdin.flush()
    for program in programs:
        program.communicate()
        assert program.returncode == 0
    store = Store.open(tmp_path / "chats.db")
    for chat in store.chats():
        path = store.path(chat.id)
        assert [m.text for m in path[::2]] == [f"{chat.title} asks {n}" for n in range(40)]
        assert [m.text for m in path[1::2]] == [f"{chat.title} hears {n}" for n in range(40)]
    assert sorted(chat.title for chat in store.chats()) == sorted(names)
    kinds = [item.kind for item in store.pending(1000)]
    assert kinds.count(OutboxKind.REMEMBER) == 3 * 80
    store.close()


def test_threads_share_one_store(store):
    chats = [store.create_chat(str(n)) for n in range(4)]
    failures = []

    def write(chat):
        try:
            for n in range(20):
                store.add_user_message(chat.id, f"{n}")
                store.path(chat.id)
        except Exception as error:  # handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(chat,)) for chat in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [store.path_length(chat.id) for chat in chats] == [20] * 4


OWNS = """
    import sys
    from pathlib import Path
    from app.store.store import acquire_owner

    owner = acquire_owner(Path(sys.argv[1]))
    print(owner is not None, flush=True)
    sys.stdin.readline()
"""


def test_one_program_owns_the_folder_until_it_ends(tmp_path):
    with start(OWNS, tmp_path) as first:
        assert first.stdout.readline() == "True\n"
        assert acquire_owner(tmp_path) is None
        first.send_signal(signal.SIGKILL)
    owner = acquire_owner(tmp_path)
    assert owner is not None
    with start(OWNS, tmp_path) as second:
        assert second.stdout.readline() == "False\n"
        second.stdin.close()
    owner.release()
    again = acquire_owner(tmp_path)
    assert again is not None
    again.release()


def test_a_database_of_the_first_version_is_upgraded_with_all_that_is_in_it(tmp_path):
    first = files("app.store").joinpath("upgrades", "0001.sql").read_text(encoding="utf-8")
    connection = sqlite3.connect(tmp_path / "chats.db")
    connection.executescript(
        f"""{first}
        INSERT INTO messages (id, chat, depth, role, text, created, status)
        VALUES ('m', 'c', 1, 'user', 'kept for years', 1.0, 'complete');
        INSERT INTO chats (id, title, created, updated, head) VALUES ('c', 'Old', 1.0, 1.0, 'm');
        PRAGMA user_version = 1;"""
    )
    connection.close()
    store = Store.open(tmp_path / "chats.db")
    assert [(m.text, m.pinned) for m in store.path("c")] == [("kept for years", False)]
    store.pin("m", True)
    assert [m.id for m in store.pinned("c")] == ["m"]
    assert store.search_messages("years")[0].message.id == "m"
    store.close()


def test_a_database_of_a_newer_version_is_left_alone(tmp_path):
    Store.open(tmp_path / "chats.db").close()
    connection = sqlite3.connect(tmp_path / "chats.db")
    connection.execute(f"PRAGMA user_version = {db.SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(StoreError, match="newer aios-chat"):
        Store.open(tmp_path / "chats.db")


def test_what_is_no_database_costs_one_sentence(tmp_path):
    (tmp_path / "chats.db").write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(tmp_path / "chats.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path / "no" / "folder" / "chats.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open(tmp_path)


def test_a_failed_upgrade_leaves_nothing_half_done(tmp_path, monkeypatch):
    monkeypatch.setattr(db, "_statements", lambda script: iter(["CREATE TABLE half (x)", "NONSENSE"]))
    with pytest.raises(StoreError):
        Store.open(tmp_path / "chats.db")
    monkeypatch.undo()
    store = Store.open(tmp_path / "chats.db")
    with store._database.read() as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchone() is None
    store.close()


def test_a_transaction_is_all_or_nothing(store):
    chat = store.create_chat("kept")
    with contextlib.suppress(ZeroDivisionError), store._database.write() as connection:
        connection.execute("DELETE FROM chats")
        raise ZeroDivisionError
    assert store.chat(chat.id) == chat


def test_a_full_disk_costs_one_sentence_and_nothing_else(store):
    chat = store.create_chat()
    kept = store.add_user_message(chat.id, "kept")
    with store._database.read() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    store._database._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        store.add_user_message(chat.id, "too much " * 10_000)
    assert store.path(chat.id) == [kept]


def test_a_closed_store_says_so(store):
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.chats()


def test_a_reader_that_stays_delays_only_the_scrubbing(store, tmp_path, monkeypatch, turn):
    chat = store.create_chat()
    turn(chat.id, "q", "a")
    reader = sqlite3.connect(tmp_path / "chats.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM messages").fetchall()
    store._database._connection.execute("PRAGMA busy_timeout = 50")
    assert "its log is emptied" in store.delete_chat(chat.id).warning
    assert store.chats() == []
    reader.execute("COMMIT")
    reader.close()


ERASED = {
    "chat": lambda store, chat, said: store.delete_chat(chat),
    "message": lambda store, chat, said: store.forget_message(said),
    "document": lambda store, chat, said: store.delete_document(DocumentId("d1")),
}


@pytest.mark.parametrize("what", ERASED)
def test_a_kill_between_delete_and_scrub_leaves_the_scrub_due(store, tmp_path, monkeypatch, what):
    chat, other = store.create_chat(), store.create_chat()
    said = store.add_user_message(chat.id, "pomegranate " * 50 if what != "document" else "What is in it?")
    asked = store.add_user_message(other.id, "What is the code?")
    source, kind = ("d1", SourceKind.DOCUMENT) if what == "document" else (chat.id, SourceKind.CHAT)
    recalled = Passage("p1", "1", source, kind, "Safe", "pomegranate " * 9, 0.5, 1.0, message=said.id)
    store.set_recall(asked.id, recalled.text, [recalled])
    left = tmp_path / "left"
    copied = lambda _database: shutil.copytree(tmp_path, left, ignore=shutil.ignore_patterns("left"))  # noqa: E731
    with monkeypatch.context() as dying:
        dying.setattr(db.Database, "scrub", copied)
        ERASED[what](store, chat.id, said.id)
    held = lambda: [path for path in left.iterdir() if b"pomegranate" in path.read_bytes()]  # noqa: E731
    assert held()
    again = Store.open(left / "chats.db")
    again.recover()
    assert held() == []
    again.close()


def test_a_reader_that_stays_keeps_no_copy_of_a_forgotten_file(store, tmp_path):
    """The scrub is late then, and the caller still hears which copies to remove."""
    chat = store.create_chat()
    store.add_user_message(chat.id, "q", attachments=[Attachment("a", "/a", "/f/1/a", DocumentId("d1"))])
    reader = sqlite3.connect(tmp_path / "chats.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM messages").fetchall()
    store._database._connection.execute("PRAGMA busy_timeout = 50")
    assert store.delete_document(DocumentId("d1")) == ("/f/1/a",)
    assert "its log is emptied" in store.scrub()
    reader.execute("COMMIT")
    reader.close()
    assert store.scrub() == ""


def test_the_files_are_private(store, tmp_path):
    store.create_chat()
    for path in tmp_path.glob("chats.db*"):
        assert path.stat().st_mode & 0o077 == 0
