"""What waits to reach the memory: done at least once, resumed at start.

An item is named by its kind and key, and both say content, not time: doing one twice changes nothing. Putting
an item in again moves it to the end, so that "ingest, forget, ingest" ends ingested.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass

from app.host.wire import ForgetRequest
from app.ids import ChatId, MessageId
from app.store.types import OutboxItem, OutboxKind

MOST_ATTEMPTS = 5
"""After these an item rests until the next start, so that one bad item does not hold up the others."""


@dataclass(frozen=True, slots=True)
class IngestPayload:
    """The key of an INGEST item: a staged file on its way into the memory."""

    staged: str
    name: str
    origin: str
    chat: ChatId | None = None

    def to_key(self) -> str:
        """As JSON, always the same for the same file."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_key(cls, key: str) -> IngestPayload:
        """The reverse of `to_key`."""
        return cls(**json.loads(key))


def forget_key(request: ForgetRequest) -> str:
    """The key of a FORGET item: the source id, or JSON when only some messages of the source go."""
    if not request.messages:
        return request.source_id
    return json.dumps({"source_id": request.source_id, "messages": list(request.messages)}, sort_keys=True)


def forget_request(key: str) -> ForgetRequest:
    """The reverse of `forget_key`."""
    if not key.startswith("{"):
        return ForgetRequest(key)
    fields = json.loads(key)
    return ForgetRequest(fields["source_id"], tuple(MessageId(message) for message in fields["messages"]))


def enqueue(connection: sqlite3.Connection, kind: OutboxKind, key: str) -> None:
    """Put an item at the end, with no attempts yet."""
    connection.execute("INSERT OR REPLACE INTO outbox (kind, key) VALUES (?, ?)", (kind, key))


def pending(connection: sqlite3.Connection, limit: int) -> list[OutboxItem]:
    """Up to `limit` items with attempts left, oldest first."""
    rows = connection.execute(
        "SELECT id, kind, key, attempts, error FROM outbox WHERE attempts < ? ORDER BY id LIMIT ?",
        (MOST_ATTEMPTS, limit),
    )
    return [OutboxItem(number, OutboxKind(kind), *rest) for number, kind, *rest in rows]


def kept(connection: sqlite3.Connection, kind: OutboxKind) -> list[OutboxItem]:
    """Every item of a kind, oldest first, those at rest included."""
    rows = connection.execute("SELECT id, kind, key, attempts, error FROM outbox WHERE kind = ? ORDER BY id", (kind,))
    return [OutboxItem(number, OutboxKind(kind), *rest) for number, kind, *rest in rows]


def done(connection: sqlite3.Connection, id: int) -> None:  # noqa: A002
    """Take an item out; one that is gone already is fine."""
    connection.execute("DELETE FROM outbox WHERE id = ?", (id,))


def failed(connection: sqlite3.Connection, id: int, error: str) -> None:  # noqa: A002
    """Count a failed attempt and keep its sentence."""
    connection.execute("UPDATE outbox SET attempts = attempts + 1, error = ? WHERE id = ?", (error, id))


def retry_all(connection: sqlite3.Connection) -> None:
    """Give every item its attempts back."""
    connection.execute("UPDATE outbox SET attempts = 0 WHERE attempts > 0")
