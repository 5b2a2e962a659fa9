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
-- In the order they came: what stands together in a source is read together.
CREATE TABLE vectors (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, source TEXT NOT NULL, vector BLOB NOT NULL
);
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
        found, vectors = _matrix(self._read(f"SELECT id, vector FROM vectors WHERE id {_IN}", json.dumps(ids)))
        return dict(zip(found, vectors, strict=True))

    def nearest(self, vector: Vectors, limit: int, ids: Sequence[PassageId]) -> list[tuple[PassageId, float]]:
        """Of these passages the nearest, best first, with their cosines."""
        return _nearest(self._read(f"SELECT id, vector FROM vectors WHERE id {_IN}", json.dumps(ids)), vector, limit)

    def nearest_of_few(
        self, vector: Vectors, limit: int, sources: Sequence[SourceId], few: int
    ) -> list[tuple[PassageId, float]] | None:
        """The same of all passages of these sources; None where they are more than `few`."""
        sql = f"SELECT id, vector FROM vectors WHERE source {_IN} LIMIT {few + 1}"
        rows = self._read(sql, json.dumps(sources))
        return None if len(rows) > few else _nearest(rows, vector, limit)

    def inside(self, ids: Sequence[PassageId], sources: Sequence[SourceId]) -> set[PassageId]:
        """Which of these passages are of these sources."""
        sql = f"SELECT id FROM vectors WHERE id {_IN} AND +source {_IN}"
        return {PassageId(row[0]) for row in self._read(sql, json.dumps(ids), json.dumps(sources))}

    def upsert(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        """Store or replace vectors, [n, dimension]."""
        halves = vectors.astype(np.float16)
        rows = [(passage.id, passage.source.id, half.tobytes()) for passage, half in zip(passages, halves, strict=True)]
        with self._lock, self._db:
            self._db.executemany("INSERT OR REPLACE INTO vectors(id, source, vector) VALUES (?, ?, ?)", rows)

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
        with db:
            db.execute("INSERT INTO mark VALUES (?)", (mark,))
    if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        db.close()
        raise sqlite3.DatabaseError("damaged")
    if db.execute("SELECT value FROM mark").fetchall() != [(mark,)]:
        db.close()
        raise sqlite3.DatabaseError("made under another mark")
    return db


def _matrix(rows: Sequence[tuple[str, bytes]]) -> tuple[list[PassageId], Vectors]:
    if not rows:
        return [], np.empty((0, 0), dtype=np.float32)
    table = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float16).reshape(len(rows), -1)
    return [PassageId(row[0]) for row in rows], table.astype(np.float32)


def _nearest(rows: Sequence[tuple[str, bytes]], vector: Vectors, limit: int) -> list[tuple[PassageId, float]]:
    if not rows:
        return []
    ids, table = _matrix(rows)
    cosines = table @ vector
    return [(ids[number], float(cosines[number])) for number in np.argsort(-cosines, kind="stable")[:limit]]
