"""Where documents stand: the same bytes at two paths are one document, and new bytes at a path replace the old."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memory.types import SourceId

if TYPE_CHECKING:
    from memory.passages import PassageDb


def leave(db: sqlite3.Connection, origin: str, but: SourceId) -> tuple[SourceId, ...]:
    """Take the path `origin` from every document other than `but`; returns those that stand nowhere else, which keep
    it until they are forgotten: a program that dies before that finds them again. One that stands at another path as
    well goes on under its name there."""
    rows = db.execute("SELECT DISTINCT source FROM names WHERE origin = ? AND source <> ?", (origin, but)).fetchall()
    gone: list[SourceId] = []
    for (source,) in rows:
        left = db.execute(
            "SELECT name, origin FROM names WHERE source = ? AND origin <> ? LIMIT 1", (source, origin)
        ).fetchone()
        if left is None:
            gone.append(SourceId(str(source)))
        else:
            db.execute("DELETE FROM names WHERE origin = ? AND source = ?", (origin, source))
            db.execute("UPDATE sources SET title = ?, origin = ? WHERE id = ? AND origin = ?", (*left, source, origin))
    return tuple(gone)


def under(db: PassageDb, paths: Sequence[str]) -> frozenset[SourceId]:
    """The documents that stand at, or below, one of these absolute paths."""
    found = set[SourceId]()
    for path in paths:
        folder = path.rstrip("/") + "/"
        rows = db.rows(
            "SELECT DISTINCT source FROM names WHERE origin = ? OR substr(origin, 1, ?) = ?", path, len(folder), folder
        )
        found.update(SourceId(str(source)) for (source,) in rows)
    return frozenset(found)
