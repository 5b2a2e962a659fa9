"""Questions typed while another is being answered. Kept on disk as well, because nothing typed is ever lost."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from app.ids import ChatId, MessageId
from app.paths import write_atomically
from app.store.types import Attachment


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One question that waits to be sent."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    quote: MessageId | None = None


class OutgoingQueues:
    """A queue for each chat. Changes are in memory at once; `save` writes them down once `mirror` has named a file."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._queues: dict[ChatId, deque[Outgoing]] = {}
        self._saving = threading.Lock()

    def mirror(self, file: Path) -> None:
        """Keep the queues in `file` from now on, beginning with what an earlier run left there.

        One program at a time may do so: the file is written whole. A damaged file counts as empty; the chats
        themselves are in chats.db.
        """
        self._file = file
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            self._queues = {ChatId(chat): deque(_outgoing(row) for row in rows) for chat, rows in stored.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._queues = {}

    def save(self) -> None:
        """Write all queues to the file. Blocks: call it off the loop. Raises PathsError."""
        if self._file is None:
            return
        with self._saving:
            rows = {chat: [asdict(item) for item in list(queue)] for chat, queue in list(self._queues.items()) if queue}
            write_atomically(self._file, json.dumps(rows))

    def texts(self, chat: ChatId) -> tuple[str, ...]:
        """The waiting texts of a chat, oldest first."""
        return tuple(item.text for item in self._queues.get(chat, ()))

    def put(self, chat: ChatId, item: Outgoing) -> None:
        """Add at the end."""
        self._queues.setdefault(chat, deque()).append(item)

    def put_back(self, chat: ChatId, item: Outgoing) -> None:
        """Put the item that `next` gave in front again."""
        self._queues.setdefault(chat, deque()).appendleft(item)

    def next(self, chat: ChatId) -> Outgoing | None:
        """Take the oldest; None when there is none."""
        queue = self._queues.get(chat)
        return queue.popleft() if queue else None

    def last(self, chat: ChatId) -> Outgoing | None:
        """Take the newest back; None when there is none."""
        queue = self._queues.get(chat)
        return queue.pop() if queue else None

    def drop(self, chat: ChatId) -> None:
        """Forget a chat's queue."""
        self._queues.pop(chat, None)


def _outgoing(row: dict[str, object]) -> Outgoing:
    attachments = row["attachments"]
    quote = row["quote"]
    if not isinstance(attachments, list):
        raise TypeError("attachments is no list")
    return Outgoing(
        str(row["text"]), tuple(Attachment(**a) for a in attachments), None if quote is None else MessageId(str(quote))
    )
