"""Words that leave the text of record: deleted in one transaction, which marks that the scrub is due, then overwritten.

The mark outlives the program: one that dies between the two scrubs at its next start.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from memory.types import PassageId, RecallError, SourceId

_IN = "IN (SELECT value FROM json_each(?))"


def delete(db: sqlite3.Connection, ids: Sequence[PassageId]) -> tuple[PassageId, ...]:
    """Remove passages, their index terms, and the digests of their messages; all that went. Inside a transaction."""
    # Looked up here and not before: a digest may have been kept a moment ago.
    digests = db.execute(
        f"SELECT DISTINCT d.passage FROM digested d JOIN passages p ON p.message = d.message WHERE p.id {_IN}",
        (json.dumps(ids),),
    )
    gone = tuple(dict.fromkeys((*ids, *(PassageId(str(identifier)) for (identifier,) in digests))))
    chosen = json.dumps(gone)
    db.execute(f"DELETE FROM terms WHERE rowid IN (SELECT number FROM passages WHERE id {_IN})", (chosen,))
    _mark(db, db.execute(f"DELETE FROM passages WHERE id {_IN}", (chosen,)).rowcount)
    return gone


def drop_source(db: sqlite3.Connection, source: SourceId) -> None:
    """Remove a source's own row and names (its passages are deleted before). Inside a transaction."""
    _mark(db, db.execute("DELETE FROM sources WHERE id = ?", (source,)).rowcount)


def _mark(db: sqlite3.Connection, deleted: int) -> None:
    if deleted:
        db.execute("INSERT OR IGNORE INTO unscrubbed VALUES (1)")


def scrub(db: sqlite3.Connection) -> None:
    """Overwrite what was deleted: merge the index's segments, rewrite the file, empty the write-ahead log. Raises
    RecallError while another program reads the file: it stays due then."""
    db.execute("INSERT INTO terms(terms) VALUES ('optimize')")
    db.execute("VACUUM")
    (busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise RecallError("Another program reads passages.db: the deleted words leave its log when that ends.")
    db.execute("DELETE FROM unscrubbed")
