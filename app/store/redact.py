"""Words that are taken out of messages which stay: those of one message, and what was recalled from it elsewhere."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Set

from app.host.wire import ForgetRequest
from app.ids import MessageId
from app.store import messages, outbox, rows
from app.store.db import StoreError
from app.store.types import MessageStatus, OutboxKind

DELETED = "[deleted]"
"""Stands where words stood that were forgotten."""


def forget_message(connection: sqlite3.Connection, message: MessageId) -> None:
    """Blank one message, a title that was made of it and what was recalled from it, and have the memory forget it. It
    keeps its place in the tree: what was said after it stays. Raises StoreError while it is being written."""
    node = messages.need(connection, message)
    if node.status is MessageStatus.STREAMING:
        raise StoreError("That answer is still being written: stop it first.")
    connection.execute(
        "UPDATE messages SET text = ?, block = '', passages = '[]', citations = '[]' WHERE id = ?", (DELETED, message)
    )
    automatic = messages.automatic_title(node.text)
    for chat, title in connection.execute("SELECT id, title FROM chats").fetchall():
        if automatic and title.startswith(automatic):
            connection.execute("UPDATE chats SET title = ? WHERE id = ?", (DELETED, chat))
    redact(connection, {message}, set())
    connection.execute("DELETE FROM outbox WHERE kind = ? AND key = ?", (OutboxKind.REMEMBER, message))
    request = ForgetRequest(node.chat, (message,))
    outbox.enqueue(connection, OutboxKind.FORGET, outbox.forget_key(request))


def redact(connection: sqlite3.Connection, gone: Set[str], sources: Set[str]) -> None:
    """Take the words of messages, and of whole sources, out of what was recalled into messages that stay."""
    touched = connection.execute(
        """
        SELECT id, passages, block FROM messages
        WHERE passages <> '[]' AND EXISTS (
            SELECT 1 FROM json_each(messages.passages) AS p
            WHERE json_extract(p.value, '$.message') IN (SELECT value FROM json_each(:gone))
            OR EXISTS (SELECT 1 FROM json_each(p.value, '$.turns') AS t WHERE t.value IN
                (SELECT value FROM json_each(:gone)))
            OR json_extract(p.value, '$.source_id') IN (SELECT value FROM json_each(:sources))
        )
        """,
        {"gone": json.dumps(sorted(gone)), "sources": json.dumps(sorted(sources))},
    ).fetchall()
    for id_, text, block in touched:
        kept = []
        for passage in rows.passages_from_json(text):
            words_of = {passage.message, *passage.turns}
            if words_of.isdisjoint(gone) and passage.source_id not in sources:
                kept.append(passage)
                continue
            kept.append(dataclasses.replace(passage, text=DELETED))
            # A block that does not hold the passage word for word may hold it shortened: then all of it goes.
            block = block.replace(passage.text, DELETED) if passage.text in block else ""
        connection.execute(
            "UPDATE messages SET passages = ?, block = ? WHERE id = ?",
            (rows.passages_to_json(kept), block, id_),
        )
