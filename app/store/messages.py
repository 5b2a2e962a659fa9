"""The message tree: nodes are added and read, never rewritten (save a streaming answer's text)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from app.host.wire import Passage, Role
from app.ids import ChatId, DocumentId, MessageId, new_message_id
from app.store import rows
from app.store.db import StoreError
from app.store.types import Attachment, Message, MessageStatus

TITLE_LENGTH = 48
"""Characters of the first message that become the chat's title."""

PATH = """
    WITH RECURSIVE path (id, parent, n) AS (
        SELECT id, parent, 1 FROM messages WHERE id = :tip
        UNION ALL SELECT m.id, m.parent, path.n + 1 FROM messages AS m JOIN path ON m.id = path.parent
        WHERE path.n < :limit
    )
"""
"""`path` are the messages from `tip` up, at most `limit` of them, counted by `n`."""
WITHOUT_LIMIT = 1 << 62


def get(connection: sqlite3.Connection, message: MessageId) -> Message | None:
    """A message by its id."""
    found = connection.execute(
        f"SELECT {rows.MESSAGE_COLUMNS} FROM {rows.MESSAGE_TABLES} WHERE m.id = ?", (message,)
    ).fetchall()
    return rows.to_messages(connection, found)[0] if found else None


def need(connection: sqlite3.Connection, message: MessageId) -> Message:
    """A message by its id; StoreError when there is none."""
    found = get(connection, message)
    if found is None:
        raise StoreError(f"There is no message {message}: its chat may have been deleted.")
    return found


def add_user(
    connection: sqlite3.Connection,
    chat: ChatId,
    text: str,
    attachments: Sequence[Attachment],
    quote: MessageId | None,
) -> Message:
    """A user message below the chat's head; becomes the head and, for a chat without one, the title."""
    head, title = _head_and_title(connection, chat)
    if quote is not None:
        need(connection, quote)
    message = _insert(connection, chat, head, Role.USER, rows.clean(text), MessageStatus.COMPLETE, quote=quote)
    connection.executemany(
        "INSERT INTO attachments (message, ordinal, name, origin, staged, document) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (message, n, rows.clean(a.name), rows.clean(a.origin), rows.clean(a.staged), a.document)
            for n, a in enumerate(attachments)
        ],
    )
    if not title:
        title = automatic_title(text) or automatic_title(", ".join(a.name for a in attachments))
        connection.execute("UPDATE chats SET title = ? WHERE id = ?", (rows.clean(title), chat))
    return need(connection, message)


def begin_answer(connection: sqlite3.Connection, chat: ChatId, parent: MessageId, writer: str) -> Message:
    """An empty answer below `parent` that streams from now on; becomes the chat's head."""
    _head_and_title(connection, chat)
    answer = _insert(connection, chat, parent, Role.ASSISTANT, "", MessageStatus.STREAMING, writer=writer)
    return need(connection, answer)


def _head_and_title(connection: sqlite3.Connection, chat: ChatId) -> tuple[MessageId | None, str]:
    row = connection.execute("SELECT head, title FROM chats WHERE id = ?", (chat,)).fetchone()
    if row is None:
        raise StoreError(f"There is no chat {chat}: it may have been deleted.")
    return row[0], row[1]


def _insert(
    connection: sqlite3.Connection,
    chat: ChatId,
    parent: MessageId | None,
    role: Role,
    text: str,
    status: MessageStatus,
    *,
    quote: MessageId | None = None,
    writer: str | None = None,
) -> MessageId:
    depth = 1
    if parent is not None:
        row = connection.execute("SELECT depth FROM messages WHERE id = ?", (parent,)).fetchone()
        if row is None:
            raise StoreError(f"There is no message {parent} to answer: its chat may have been deleted.")
        depth = row[0] + 1
    id_ = new_message_id()
    now = time.time()
    connection.execute(
        "INSERT INTO messages (id, chat, parent, depth, role, text, created, status, quote, writer)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (id_, chat, parent, depth, role, text, now, status, quote, writer),
    )
    connection.execute("UPDATE chats SET head = ?, updated = ? WHERE id = ?", (id_, now, chat))
    return id_


def automatic_title(text: str) -> str:
    """The first line that says something, cut at a word."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[:TITLE_LENGTH]
    # Text without spaces (Chinese, a long path) is cut where it is.
    words = cut.rsplit(" ", 1)[0] if " " in cut[TITLE_LENGTH // 2 :] else cut
    return words.rstrip() + "…"


def set_recall(connection: sqlite3.Connection, message: MessageId, block: str, passages: Sequence[Passage]) -> Message:
    """Keep what was recalled for a user message, as it stands in the prompt."""
    connection.execute(
        "UPDATE messages SET block = ?, passages = ? WHERE id = ?",
        (rows.clean(block), rows.passages_to_json(passages), message),
    )
    return need(connection, message)


def path(connection: sqlite3.Connection, chat: ChatId, limit: int | None, before: MessageId | None) -> list[Message]:
    """The last `limit` messages of the chat's path (those above `before` where it is given), oldest first."""
    tip, _ = _head_and_title(connection, chat)
    if before is not None:
        tip = need(connection, before).parent
    if tip is None or (limit is not None and limit <= 0):
        return []
    found = connection.execute(
        f"{PATH} SELECT {rows.MESSAGE_COLUMNS} FROM path JOIN messages AS m ON m.id = path.id"
        " LEFT JOIN journal AS j ON j.message = m.id ORDER BY path.n DESC",
        {"tip": tip, "limit": WITHOUT_LIMIT if limit is None else limit},
    ).fetchall()
    return rows.to_messages(connection, found)


def path_length(connection: sqlite3.Connection, chat: ChatId) -> int:
    """How many messages the chat's path has."""
    head, _ = _head_and_title(connection, chat)
    if head is None:
        return 0
    (depth,) = connection.execute("SELECT depth FROM messages WHERE id = ?", (head,)).fetchone()
    return int(depth)


def set_document(connection: sqlite3.Connection, staged: str, document: DocumentId) -> int:
    """The staged file is this document now; the number of attachments that learnt it."""
    cursor = connection.execute("UPDATE attachments SET document = ? WHERE staged = ?", (document, rows.clean(staged)))
    return cursor.rowcount


def chat_documents(connection: sqlite3.Connection, chat: ChatId) -> tuple[DocumentId, ...]:
    """Documents attached on the chat's path, in the order they came."""
    head, _ = _head_and_title(connection, chat)
    found = connection.execute(
        f"{PATH} SELECT a.document FROM path JOIN attachments AS a ON a.message = path.id"
        " WHERE a.document IS NOT NULL ORDER BY path.n DESC, a.ordinal",
        {"tip": head, "limit": WITHOUT_LIMIT},
    )
    return tuple(dict.fromkeys(DocumentId(document) for (document,) in found))


def is_attached(connection: sqlite3.Connection, document: DocumentId) -> bool:
    """Whether a message has this document attached."""
    row = connection.execute("SELECT 1 FROM attachments WHERE document = ? LIMIT 1", (document,)).fetchone()
    return row is not None


def delete_document(connection: sqlite3.Connection, document: DocumentId) -> tuple[str, ...]:
    """Detach a document from every message; the staged copies that nothing needs any more."""
    staged = connection.execute("SELECT DISTINCT staged FROM attachments WHERE document = ?", (document,)).fetchall()
    connection.execute("UPDATE attachments SET document = NULL, staged = '' WHERE document = ?", (document,))
    return tuple(sorted(path for (path,) in staged if path))
