"""Rows of chats.db to and from the dataclasses of app.store.types."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from app.host.wire import Passage, Role, SourceKind
from app.ids import ChatId, DocumentId, MessageId
from app.store.types import Attachment, Chat, Figures, Message, MessageStatus

MESSAGE_COLUMNS = """
    m.id, m.chat, m.parent, m.role, coalesce(j.text, m.text), m.created, m.status, m.starred_at, m.block,
    m.quote, m.passages, m.citations, m.figures, m.pinned
"""
"""With `MESSAGE_TABLES`: a streaming answer shows what its journal holds."""
MESSAGE_TABLES = "messages AS m LEFT JOIN journal AS j ON j.message = m.id"
CHAT_QUERY = """
    SELECT c.id, c.title, c.created, c.updated, c.head, c.forked_from, coalesce(m.depth, 0)
    FROM chats AS c LEFT JOIN messages AS m ON m.id = c.head
"""
_MOST_VARIABLES = 500
"""SQLite built before 3.32 allows 999 in one statement."""

Row = tuple[Any, ...]


def clean(text: str) -> str:
    """`text` as UTF-8 can hold it: half characters (lone surrogates), which SQLite refuses, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def to_chat(row: Row) -> Chat:
    """A row of CHAT_QUERY."""
    return Chat(*row)


def to_messages(connection: sqlite3.Connection, rows: Sequence[Row]) -> list[Message]:
    """Rows of MESSAGE_COLUMNS, in their order, with their attachments."""
    attachments = _attachments(connection, [row[0] for row in rows])
    return [_to_message(row, tuple(attachments.get(row[0], ()))) for row in rows]


def _to_message(row: Row, attachments: tuple[Attachment, ...]) -> Message:
    return Message(
        id=MessageId(row[0]),
        chat=ChatId(row[1]),
        parent=None if row[2] is None else MessageId(row[2]),
        role=Role(row[3]),
        text=row[4],
        created=row[5],
        status=MessageStatus(row[6]),
        starred=row[7] is not None,
        block=row[8],
        quote=None if row[9] is None else MessageId(row[9]),
        attachments=attachments,
        passages=passages_from_json(row[10]),
        citations=tuple(json.loads(row[11])),
        figures=None if row[12] is None else Figures(**json.loads(row[12])),
        pinned=bool(row[13]),
    )


def _attachments(connection: sqlite3.Connection, ids: list[str]) -> dict[str, list[Attachment]]:
    found: dict[str, list[Attachment]] = {}
    for start in range(0, len(ids), _MOST_VARIABLES):
        some = ids[start : start + _MOST_VARIABLES]
        marks = ",".join("?" * len(some))
        for message, name, origin, staged, document in connection.execute(
            f"SELECT message, name, origin, staged, document FROM attachments WHERE message IN ({marks})"
            " ORDER BY message, ordinal",
            some,
        ):
            known = None if document is None else DocumentId(document)
            found.setdefault(message, []).append(Attachment(name, origin, staged, known))
    return found


def passages_to_json(passages: Iterable[Passage]) -> str:
    """Passages as a JSON array of objects."""
    return json.dumps([dataclasses.asdict(passage) for passage in passages])


def passages_from_json(text: str) -> tuple[Passage, ...]:
    """The reverse of `passages_to_json`; a field that this version does not know is left out."""
    if text == "[]":
        return ()
    known = {field.name for field in dataclasses.fields(Passage)}
    found: list[dict[str, Any]] = json.loads(text)
    return tuple(
        Passage(
            **{k: v for k, v in item.items() if k in known}
            | {"source_kind": SourceKind(item["source_kind"])}
            | {name: tuple(item.get(name, ())) for name in ("also", "turns")}
        )
        for item in found
    )
