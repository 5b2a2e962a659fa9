"""Starred messages."""

from __future__ import annotations

import sqlite3
import time

from app.ids import MessageId
from app.store import messages, rows
from app.store.types import Message


def star(connection: sqlite3.Connection, message: MessageId, starred: bool) -> Message:
    """Star or unstar a message; starring a starred one keeps its place."""
    connection.execute(
        "UPDATE messages SET starred_at = CASE WHEN ? THEN coalesce(starred_at, ?) END WHERE id = ?",
        (starred, time.time(), message),
    )
    return messages.need(connection, message)


def favorites(connection: sqlite3.Connection) -> list[Message]:
    """Starred messages, the last starred first."""
    found = connection.execute(
        f"SELECT {rows.MESSAGE_COLUMNS} FROM {rows.MESSAGE_TABLES}"
        " WHERE m.starred_at IS NOT NULL ORDER BY m.starred_at DESC, m.seq DESC"
    ).fetchall()
    return rows.to_messages(connection, found)
