"""Can this Python's SQLite hold the chats and the lexical index?"""

from __future__ import annotations

import sqlite3

from app.doctor.check import Check, Status

NEEDED = (3, 35, 0)
"""Chroma's floor; RETURNING, which the store uses, came with the same version."""
FIX = "Use a Python built with SQLite 3.35 or newer with FTS5 (python.org, uv, conda and current systems have it)."


def check(version: tuple[int, ...] | None = None) -> Check:
    """Compare the SQLite version (or the one given), and make a full-text table to see that FTS5 works."""
    have = version or sqlite3.sqlite_version_info
    words = ".".join(map(str, have))
    if have < NEEDED:
        return Check("SQLite", Status.FAILURE, f"{words} is too old", FIX)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(text)")
        connection.execute("INSERT INTO t VALUES ('a page of memory')")
        found = connection.execute("SELECT count(*) FROM t WHERE t MATCH 'page'").fetchone()[0]
    except sqlite3.OperationalError as error:
        return Check("SQLite", Status.FAILURE, f"{words} without full-text search ({error})", FIX)
    finally:
        connection.close()
    if found != 1:
        return Check("SQLite", Status.FAILURE, f"{words}, but its full-text search finds nothing", FIX)
    return Check("SQLite", Status.OK, f"{words} with FTS5")
