"""One SQLite connection: how it is opened, upgraded, read, written and scrubbed.

WAL lets a reader and a writer of two programs work at once; `BEGIN IMMEDIATE` with a busy timeout makes two
writers wait for each other instead of failing with "database is locked".
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from app.errors import PersonError

SCHEMA_VERSION = 4
"""The number of the newest file in app/store/upgrades; kept in PRAGMA user_version."""
BUSY_SECONDS = 20.0
"""How long a write waits for another program's. Ours last milliseconds; a vacuum of 75 MiB about a second."""


class StoreError(PersonError):
    """One sentence for the person: what is wrong with the chats or the request, and what to do."""


class Database:
    """One connection that any thread may use, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        with self._lock, in_words(path):
            self._connection = _connect(path)
            _upgrade(self._connection, path)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection whose statements all see the same moment. Raises StoreError."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end, undone by any exception. Raises StoreError."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def erase(self) -> Iterator[sqlite3.Connection]:
        """A `write` that takes words away: `scrub` is due after it, also for a program that dies before."""
        with self.write() as connection:
            yield connection
            connection.execute("INSERT INTO unscrubbed DEFAULT VALUES")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock, in_words(self.path):
            connection = self._open_connection()
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def scrub(self) -> None:
        """Give deleted text's bytes back, where that is due: out of the text index, the free pages and the log.

        `secure_delete` has already zeroed rows; but FTS5 keeps a deleted row's words until its segments
        merge, and the log keeps old pages until it is truncated. Raises StoreError when that cannot be done.
        """
        with self._lock, in_words(self.path):
            connection = self._open_connection()
            (due,) = connection.execute("SELECT max(id) FROM unscrubbed").fetchone()
            if due is None:
                return
            for index in ("message_words", "message_trigrams"):
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
            connection.execute("VACUUM")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StoreError(f"Another program reads {self.path}: its log is emptied when that ends.")
            # Not those that another program has added meanwhile.
            connection.execute("DELETE FROM unscrubbed WHERE id <= ?", (due,))

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError("The chats are closed.")
        return self._connection


def _connect(path: Path) -> sqlite3.Connection:
    # SQLite gives its log the permissions of the database: private from the first byte.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _enter_wal(connection)
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        # FULL: a committed message survives a power loss, not only a crash of the program.
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL. SQLite does not call the busy handler for this one, so two first starts may collide."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema to SCHEMA_VERSION, one numbered file after the other, all or nothing."""
    if _version(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another program may have upgraded it while this one waited.
        version = _version(connection)
        if version > SCHEMA_VERSION:
            raise StoreError(f"{path} was written by a newer aios-chat: update this one to open it.")
        for number in range(version + 1, SCHEMA_VERSION + 1):
            script = files("app.store").joinpath("upgrades", f"{number:04}.sql").read_text(encoding="utf-8")
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the transaction around it."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors over `path` into a StoreError of one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(_sentence(error, path)) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {(error.strerror or str(error)).lower()}.") from error


def _sentence(error: sqlite3.Error, path: Path) -> str:
    # The low byte is the primary code; the rest says which variety.
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return f"The disk of {path} is full: free some space and try again; nothing was changed."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return f"{path} cannot be written: change the permissions of its folder."
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return f"{path} is damaged: move it elsewhere to start afresh, or put a backup in its place."
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"Another program has been writing to {path} for {BUSY_SECONDS:g} s: close it and try again."
        case _:
            return f"{path} cannot be used: {error}."
