"""The pages of a document that are still to be read, kept with its passages."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memory.types import SourceId

if TYPE_CHECKING:
    from memory.passages import PassageDb


def pages(passages: PassageDb, source: SourceId) -> tuple[int, ...]:
    """The numbers of the pages of a document that wait, in order."""
    rows = passages.rows("SELECT page FROM unread WHERE source = ? ORDER BY page", source)
    return tuple(int(str(page)) for (page,) in rows)


def keep(db: sqlite3.Connection, source: SourceId, left: Sequence[int]) -> None:
    """From now on these are the pages that wait."""
    db.execute("DELETE FROM unread WHERE source = ?", (source,))
    db.executemany("INSERT INTO unread(source, page) VALUES (?, ?)", [(source, page) for page in left])


def first_ordinal(passages: PassageDb, source: SourceId, page: int) -> int:
    """The running number of the first passage of `page`, which is read after others: right behind the last one where
    that stands on the page before, else one further on, for they are no neighbours."""
    rows = passages.rows("SELECT ordinal, page FROM passages WHERE source = ? ORDER BY ordinal DESC LIMIT 1", source)
    if not rows:
        return 0
    ordinal, last = (int(str(value)) for value in rows[0])
    return ordinal + (1 if last in (page - 1, page) else 2)
