"""Vectors by id and by source in one SQLite table, as half-precision numbers: what ranking reads."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from memory.embed import Vectors
from memory.types import Passage, PassageId, SourceId

_SCHEMA = """
CREATE TABLE mark (value TEXT NOT NULL);
CREATE TABLE vectors (id TEXT PRIMARY KEY, source TEXT NOT NULL, vector BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX vectors_by_source ON vectors(source);
"""
_IN = "IN (SELECT value FROM json_each(?))"


class VectorTable:
    """One file; any thread may ask."""

    def __init__(self, file: Path, mark: str) -> None:
        """Open or create. A file that is damaged, or was made under another mark, is made anew, empty."""
        self._lock = threading.Lock()
        try:
            self._db = _open(file, mark)
        except sqlite3.DatabaseError:
            for part in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
                part.unlink(missing_ok=True)
            self._db = _open(file, mark)

    def _read(self, sql: str, *parameters: str) -> list[tuple[str, bytes]]:
        with self._lock:
            return self._db.execute(sql, parameters).fetchall()

    def ids(self) -> set[PassageId]:
        """Every id with a vector."""
        return {PassageId(row[0]) for row in self._read("SELECT id FROM vectors")}

    def rows(self, ids: Sequence[PassageId]) -> dict[PassageId, Vectors]:
        """The vectors of these passages, shape [dimension] each; unknown ids are left out."""
        return _vectors(self._read(f"SELECT id, vector FROM vectors WHERE id {_IN}", json.dumps(ids)))

    def of_sources(self, sources: Sequence[SourceId]) -> dict[PassageId, Vectors]:
        """The vectors of all passages of these sources."""
        return _vectors(self._read(f"SELECT id, vector FROM vectors WHERE source {_IN}", json.dumps(sources)))

    def upsert(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        """Store or replace vectors, [n, dimension]."""
        halves = vectors.astype(np.float16)
        rows = [(passage.id, passage.source.id, half.tobytes()) for passage, half in zip(passages, halves, strict=True)]
        with self._lock, self._db:
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def delete(self, ids: Sequence[PassageId]) -> None:
        """Remove vectors; unknown ids are no error."""
        with self._lock, self._db:
            self._db.execute(f"DELETE FROM vectors WHERE id {_IN}", (json.dumps(ids),))

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._db.close()


def _open(file: Path, mark: str) -> sqlite3.Connection:
    db = sqlite3.connect(file, check_same_thread=False, timeout=5.0)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
        db.execute(f"PRAGMA {pragma}")
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        db.executescript(_SCHEMA)
    if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        db.close()
        raise sqlite3.DatabaseError("damaged")
    if db.execute("SELECT value FROM mark").fetchall() != [(mark,)]:
        with db:
            db.execute("DELETE FROM vectors")
            db.execute("DELETE FROM mark")
            db.execute("INSERT INTO mark VALUES (?)", (mark,))
    return db


def _vectors(rows: Sequence[tuple[str, bytes]]) -> dict[PassageId, Vectors]:
    if not rows:
        return {}
    table = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float16).reshape(len(rows), -1)
    return dict(zip((PassageId(row[0]) for row in rows), table.astype(np.float32), strict=True))
