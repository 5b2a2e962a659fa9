"""Chats: made, found, listed, named, forked and deleted."""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass

from app.host.wire import ForgetRequest
from app.ids import ChatId, DocumentId, MessageId, new_chat_id
from app.store import bases, messages, outbox, redact, rows
from app.store.db import StoreError
from app.store.types import Chat, OutboxKind

FORK_MARK = " (fork)"
SHORTEST_SUFFIX = 4
"""Ids begin with their time, so the last digits tell two chats apart sooner than the first."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deletion took away, and what nothing refers to any more."""

    messages: tuple[MessageId, ...]
    documents: tuple[DocumentId, ...]
    """Documents that only the deleted messages had; still in the memory (see `Store.delete_document`)."""
    staged: tuple[str, ...]
    """Staged copies that only the deleted messages had."""
    warning: str = ""
    """One sentence when the rows are gone but their bytes could not be given back yet."""


def create(connection: sqlite3.Connection, title: str, id: ChatId | None) -> Chat:  # noqa: A002
    """A chat without messages."""
    now = time.time()
    chat = Chat(id=id or new_chat_id(), title=rows.clean(title), created=now, updated=now, head=None)
    _insert(connection, chat)
    return chat


def _insert(connection: sqlite3.Connection, chat: Chat) -> None:
    try:
        connection.execute(
            "INSERT INTO chats (id, title, created, updated, head, forked_from) VALUES (?, ?, ?, ?, ?, ?)",
            (chat.id, chat.title, chat.created, chat.updated, chat.head, chat.forked_from),
        )
    except sqlite3.IntegrityError:
        raise StoreError(f"There is a chat {chat.id} already.") from None


def get(connection: sqlite3.Connection, chat: ChatId) -> Chat | None:
    """A chat by its whole id."""
    row = connection.execute(f"{rows.CHAT_QUERY} WHERE c.id = ?", (chat,)).fetchone()
    return None if row is None else rows.to_chat(row)


def need(connection: sqlite3.Connection, chat: ChatId) -> Chat:
    """A chat by its whole id; StoreError when there is none."""
    found = get(connection, chat)
    if found is None:
        raise StoreError(f"There is no chat {chat}: it may have been deleted.")
    return found


def find(connection: sqlite3.Connection, given: str) -> Chat | None:
    """The chat a person means: by id, start or end of the id, or title; StoreError when several fit."""
    wanted = given.strip()
    if not wanted:
        return None
    every = listed(connection)
    by_suffix = len(wanted) >= SHORTEST_SUFFIX
    for found in (
        [chat for chat in every if chat.id == wanted],
        [chat for chat in every if chat.id.startswith(wanted)],
        [chat for chat in every if by_suffix and chat.id.endswith(wanted)],
        [chat for chat in every if chat.title.casefold() == wanted.casefold()],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(f"{chat.id} ({chat.title or 'untitled'})" for chat in found[:3])
            raise StoreError(f"{given!r} fits {len(found)} chats: write more of the id of one, such as {some}.")
    return None


def listed(connection: sqlite3.Connection) -> list[Chat]:
    """All chats, most recently used first."""
    cursor = connection.execute(f"{rows.CHAT_QUERY} ORDER BY c.updated DESC, c.id DESC")
    return [rows.to_chat(row) for row in cursor]


def rename(connection: sqlite3.Connection, chat: ChatId, title: str) -> Chat:
    """Name a chat."""
    connection.execute("UPDATE chats SET title = ? WHERE id = ?", (rows.clean(title).strip(), chat))
    return need(connection, chat)


def fork(connection: sqlite3.Connection, chat: ChatId, message: MessageId) -> Chat:
    """A new chat whose path ends at `message`; no message is copied."""
    old = need(connection, chat)
    node = messages.need(connection, message)
    now = time.time()
    new = Chat(
        id=new_chat_id(),
        title=(old.title or "untitled").removesuffix(FORK_MARK) + FORK_MARK,
        created=now,
        updated=now,
        head=node.id,
        forked_from=node.id,
    )
    _insert(connection, new)
    bases.copy(connection, chat, new.id)
    return need(connection, new.id)


def delete(connection: sqlite3.Connection, chat: ChatId) -> Deleted:
    """Delete a chat and every message that no other chat needs, and have the memory forget them."""
    need(connection, chat)
    connection.execute("DELETE FROM chats WHERE id = ?", (chat,))
    gone = _unneeded(connection)
    ids = [message for message, _ in gone]
    attached = connection.execute(
        "SELECT DISTINCT staged, document FROM attachments WHERE message IN (SELECT value FROM json_each(?))",
        (json.dumps(ids),),
    ).fetchall()
    connection.execute("DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),))
    connection.execute(
        "DELETE FROM outbox WHERE kind = ? AND key IN (SELECT value FROM json_each(?))",
        (OutboxKind.REMEMBER, json.dumps(ids)),
    )
    redact.redact(connection, set(ids), _forget(connection, chat, gone))
    _drop_ingests(connection, chat)
    return _released(connection, tuple(MessageId(message) for message in ids), attached)


def _unneeded(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """(message, its chat) for messages whose chat is gone and that no living chat's path reaches.

    A living chat keeps all that was written in it, answers that were regenerated away included, with the
    paths that lead to them.
    """
    return connection.execute(
        """
        WITH RECURSIVE kept (id) AS (
            SELECT head FROM chats WHERE head IS NOT NULL
            UNION SELECT id FROM messages WHERE chat IN (SELECT id FROM chats)
            UNION SELECT m.parent FROM messages AS m JOIN kept ON m.id = kept.id WHERE m.parent IS NOT NULL
        )
        SELECT id, chat FROM messages WHERE id NOT IN (SELECT id FROM kept) ORDER BY seq
        """
    ).fetchall()


def _forget(connection: sqlite3.Connection, chat: ChatId, gone: list[tuple[str, str]]) -> set[str]:
    """Ask the memory to forget: whole chats of which nothing is left (returned), else single messages."""
    whole: set[str] = set()
    by_chat: dict[str, list[MessageId]] = {chat: []}
    for message, owner in gone:
        by_chat.setdefault(owner, []).append(MessageId(message))
    for owner, ids in by_chat.items():
        (left,) = connection.execute("SELECT count(*) FROM messages WHERE chat = ?", (owner,)).fetchone()
        if not left:
            whole.add(owner)
            outbox.enqueue(connection, OutboxKind.FORGET, outbox.forget_key(ForgetRequest(owner)))
        elif ids:
            outbox.enqueue(connection, OutboxKind.FORGET, outbox.forget_key(ForgetRequest(owner, tuple(ids))))
    return whole


def _drop_ingests(connection: sqlite3.Connection, chat: ChatId) -> None:
    """Files dropped into a deleted chat that have not been read yet need not be read any more."""
    rows = connection.execute("SELECT id, key FROM outbox WHERE kind = ?", (OutboxKind.INGEST,)).fetchall()
    for item, key in rows:
        payload = outbox.IngestPayload.from_key(key)
        if payload.chat == chat and not _known(connection, "staged", payload.staged):
            outbox.done(connection, item)


def _released(
    connection: sqlite3.Connection, gone: tuple[MessageId, ...], attached: list[tuple[str, str | None]]
) -> Deleted:
    documents = {d for _, d in attached if d is not None and not _known(connection, "document", d)}
    staged = {s for s, _ in attached if s and not _known(connection, "staged", s)}
    waiting = {
        outbox.IngestPayload.from_key(key).staged
        for (key,) in connection.execute("SELECT key FROM outbox WHERE kind = ?", (OutboxKind.INGEST,))
    }
    return Deleted(gone, tuple(DocumentId(d) for d in sorted(documents)), tuple(sorted(staged - waiting)))


def _known(connection: sqlite3.Connection, column: str, value: str) -> bool:
    return connection.execute(f"SELECT 1 FROM attachments WHERE {column} = ? LIMIT 1", (value,)).fetchone() is not None


def home(connection: sqlite3.Connection, message: MessageId) -> Chat | None:
    """A chat in which `message` can be read: the one it was written in, or a fork when that one is gone."""
    node = messages.get(connection, message)
    if node is None:
        return None
    own = get(connection, node.chat)
    if own is not None:
        return own
    row = connection.execute(
        f"""
        WITH RECURSIVE below (id) AS (
            SELECT ? UNION SELECT m.id FROM messages AS m JOIN below ON m.parent = below.id
        )
        {rows.CHAT_QUERY} WHERE c.head IN (SELECT id FROM below) ORDER BY c.updated DESC LIMIT 1
        """,
        (message,),
    ).fetchone()
    return None if row is None else rows.to_chat(row)
