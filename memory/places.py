"""Where documents stand: the same bytes at two paths are one document, and new bytes at a path replace the old."""

from __future__ import annotations

import sqlite3

from memory.types import SourceId


def leave(db: sqlite3.Connection, origin: str, but: SourceId) -> tuple[SourceId, ...]:
    """Take the path `origin` from every document other than `but`; returns those that are left without a path.
    A document that stands at another path as well goes on under its name there."""
    rows = db.execute("SELECT DISTINCT source FROM names WHERE origin = ? AND source <> ?", (origin, but)).fetchall()
    gone: list[SourceId] = []
    for (source,) in rows:
        db.execute("DELETE FROM names WHERE origin = ? AND source = ?", (origin, source))
        left = db.execute("SELECT name, origin FROM names WHERE source = ? LIMIT 1", (source,)).fetchone()
        if left is None:
            gone.append(SourceId(str(source)))
        else:
            db.execute("UPDATE sources SET title = ?, origin = ? WHERE id = ? AND origin = ?", (*left, source, origin))
    return tuple(gone)
