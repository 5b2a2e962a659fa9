"""An answer while it streams: journalled, finished, or recovered after a crash."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Callable, Sequence

from app.host.wire import Passage
from app.ids import MessageId
from app.store import messages, outbox, rows
from app.store.db import StoreError
from app.store.types import Figures, Message, MessageStatus, OutboxKind


def write(connection: sqlite3.Connection, message: MessageId, text: str) -> bool:
    """Keep the answer as far as it has come. False when it does not stream (any more).

    A shorter text never replaces a longer one: two calls from two threads may arrive in either order.
    """
    cursor = connection.execute(
        """
        INSERT INTO journal (message, text)
        SELECT id, :text FROM messages WHERE id = :message AND status = 'streaming'
        ON CONFLICT (message) DO UPDATE SET text = excluded.text WHERE length(excluded.text) > length(text)
        """,
        {"message": message, "text": rows.clean(text)},
    )
    return cursor.rowcount > 0


def finish(
    connection: sqlite3.Connection,
    message: MessageId,
    text: str,
    status: MessageStatus,
    passages: Sequence[Passage],
    citations: Sequence[str],
    figures: Figures | None,
) -> Message:
    """The answer's last text and how it ended; the question and the answer go to the memory."""
    if status is MessageStatus.STREAMING:
        raise ValueError("an answer that streams is not finished")
    now = time.time()
    cursor = connection.execute(
        "UPDATE messages SET text = ?, status = ?, passages = ?, citations = ?, figures = ?, writer = NULL"
        " WHERE id = ?",
        (
            rows.clean(text),
            status,
            rows.passages_to_json(passages),
            json.dumps(list(citations)),
            None if figures is None else json.dumps(dataclasses.asdict(figures)),
            message,
        ),
    )
    if cursor.rowcount == 0:
        raise StoreError("The answer cannot be kept: its chat was deleted while it was written.")
    connection.execute("DELETE FROM journal WHERE message = ?", (message,))
    answer = messages.need(connection, message)
    connection.execute("UPDATE chats SET updated = ? WHERE id = ?", (now, answer.chat))
    _queue(connection, [id_ for id_ in (answer.parent, answer.id) if id_ is not None])
    return answer


def recover(connection: sqlite3.Connection, is_alive: Callable[[str], bool]) -> list[Message]:
    """Answers whose writer is gone become INTERRUPTED with the journalled text; all that was not queued is.

    `is_alive` tells of a writer's token whether its program still runs.
    """
    streaming = connection.execute("SELECT id, writer FROM messages WHERE status = 'streaming' ORDER BY seq").fetchall()
    dead = {writer: not is_alive(writer) for writer in {writer for _, writer in streaming}}
    lost = [MessageId(id_) for id_, writer in streaming if dead[writer]]
    for message in lost:
        connection.execute(
            "UPDATE messages SET status = ?, writer = NULL,"
            " text = coalesce((SELECT text FROM journal WHERE message = messages.id), text) WHERE id = ?",
            (MessageStatus.INTERRUPTED, message),
        )
        connection.execute("DELETE FROM journal WHERE message = ?", (message,))
    unqueued = connection.execute("SELECT id FROM messages WHERE queued = 0 AND status <> 'streaming' ORDER BY seq")
    _queue(connection, [MessageId(id_) for (id_,) in unqueued.fetchall()])
    outbox.retry_all(connection)
    return [messages.need(connection, message) for message in lost]


def _queue(connection: sqlite3.Connection, ids: Sequence[MessageId]) -> None:
    """Put each message into the outbox once; one that says nothing is only marked."""
    for message in ids:
        row = connection.execute("SELECT text FROM messages WHERE id = ? AND queued = 0", (message,)).fetchone()
        if row is None:
            continue
        if row[0].strip():
            outbox.enqueue(connection, OutboxKind.REMEMBER, message)
        connection.execute("UPDATE messages SET queued = 1 WHERE id = ?", (message,))
