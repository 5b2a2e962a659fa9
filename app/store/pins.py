"""Messages that are pinned to the window."""

from __future__ import annotations

import sqlite3

from app.ids import ChatId, MessageId
from app.store import chats, messages, rows
from app.store.types import Message


def pin(connection: sqlite3.Connection, message: MessageId, pinned: bool) -> Message:
    """Pin or unpin a message, in every chat whose path it is on."""
    connection.execute("UPDATE messages SET pinned = ? WHERE id = ?", (pinned, message))
    return messages.need(connection, message)


def pinned(connection: sqlite3.Connection, chat: ChatId) -> list[Message]:
    """The pinned messages on the chat's path, in its order."""
    found = connection.execute(
        f"{messages.PATH} SELECT {rows.MESSAGE_COLUMNS} FROM path JOIN messages AS m ON m.id = path.id"
        " LEFT JOIN journal AS j ON j.message = m.id WHERE m.pinned = 1 ORDER BY path.n DESC",
        {"tip": chats.need(connection, chat).head, "limit": messages.WITHOUT_LIMIT},
    ).fetchall()
    return rows.to_messages(connection, found)
