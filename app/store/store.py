"""The door to chats.db. Every method is short, blocking and safe to call from any thread."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path

from app.host.wire import ForgetRequest, Passage, RememberedMessage
from app.ids import ChatId, DocumentId, MessageId
from app.store import bases, chats, export, favorites, journal, messages, outbox, pins, redact, search
from app.store.chats import Deleted
from app.store.db import Database, StoreError, in_words
from app.store.outbox import IngestPayload, forget_request
from app.store.owner import Owner, Writer, acquire_owner, writer_is_alive
from app.store.search import MessageHit
from app.store.types import Attachment, Base, Chat, Figures, Message, MessageStatus, OutboxItem, OutboxKind

__all__ = [
    "Deleted",
    "IngestPayload",
    "MessageHit",
    "Owner",
    "Store",
    "StoreError",
    "acquire_owner",
    "forget_request",
]


class Store:
    """Chats, messages, favourites, journal and outbox in one SQLite file.

    Every method raises StoreError, one sentence, for an unknown id and for whatever the disk refuses.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._folder = database.path.parent
        self._writer: Writer | None = None
        self._writer_lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open (or make) the store at `path`. Its folder must exist; any number of programs may."""
        return cls(Database(path))

    def close(self) -> None:
        """Close it; answers still streaming count as interrupted. A second call does nothing."""
        with self._writer_lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._database.close()

    # --- chats

    def create_chat(self, title: str = "", *, id: ChatId | None = None) -> Chat:  # noqa: A002
        """A chat without messages, under a fresh id or the given one."""
        with self._database.write() as connection:
            return chats.create(connection, title, id)

    def chat(self, chat: ChatId) -> Chat | None:
        """A chat by its whole id."""
        with self._database.read() as connection:
            return chats.get(connection, chat)

    def find_chat(self, given: str) -> Chat | None:
        """The chat a person means by `given`: the id, its start, its end (4 or more characters) or the title.

        Raises StoreError naming some when several fit.
        """
        with self._database.read() as connection:
            return chats.find(connection, given)

    def chats(self) -> list[Chat]:
        """All chats with the length of their paths, most recently used first."""
        with self._database.read() as connection:
            return chats.listed(connection)

    def rename(self, chat: ChatId, title: str) -> Chat:
        """Name a chat."""
        with self._database.write() as connection:
            return chats.rename(connection, chat, title)

    def fork(self, chat: ChatId, message: MessageId) -> Chat:
        """A new chat that shares the path up to and including `message`; nothing is copied."""
        with self._database.write() as connection:
            return chats.fork(connection, chat, message)

    def delete_chat(self, chat: ChatId) -> Deleted:
        """Delete a chat and all messages that no other chat needs: rows, index, freed bytes.

        In the same transaction the memory is asked (outbox) to forget them, and their words leave what was
        recalled from them elsewhere.
        """
        with self._database.erase() as connection:
            deleted = chats.delete(connection, chat)
        return dataclasses.replace(deleted, warning=self.scrub())

    def scrub(self) -> str:
        """Give the bytes of deleted words back, where that is due still; why it could not be done, "" when all is well.
        Then it stays due, and `recover` tries again."""
        try:
            self._database.scrub()
        except StoreError as error:
            return str(error)
        return ""

    # --- messages

    def add_user_message(
        self,
        chat: ChatId,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        quote: MessageId | None = None,
    ) -> Message:
        """Commit a user message below the chat's head; it becomes the head and, for a new chat, the title."""
        with self._database.write() as connection:
            return messages.add_user(connection, chat, text, attachments, quote)

    def set_recall(self, message: MessageId, block: str, passages: Sequence[Passage]) -> Message:
        """Keep the block that stands before a user message in the prompt, and its passages."""
        with self._database.write() as connection:
            return messages.set_recall(connection, message, block, passages)

    def message(self, message: MessageId) -> Message | None:
        """A message by its id; one that streams shows its journal."""
        with self._database.read() as connection:
            return messages.get(connection, message)

    def forget_message(self, message: MessageId) -> None:
        """Blank a message here and in what was recalled from it, and ask the memory (outbox) to forget it."""
        with self._database.erase() as connection:
            redact.forget_message(connection, message)
        self.scrub()

    def path(self, chat: ChatId, limit: int | None = None, before: MessageId | None = None) -> list[Message]:
        """The chat's path, oldest first: its last `limit` messages, or those above `before`."""
        with self._database.read() as connection:
            return messages.path(connection, chat, limit, before)

    def path_length(self, chat: ChatId) -> int:
        """How many messages the chat's path has."""
        with self._database.read() as connection:
            return messages.path_length(connection, chat)

    def search_messages(self, query: str, limit: int = 20) -> list[MessageHit]:
        """Messages that hold every word of `query`, best first."""
        with self._database.read() as connection:
            return search.search(connection, query, limit)

    # --- answers

    def begin_answer(self, chat: ChatId, parent: MessageId) -> Message:
        """An empty STREAMING answer below `parent`; becomes the chat's head."""
        writer = self._become_writer()
        with self._database.write() as connection:
            return messages.begin_answer(connection, chat, parent, writer.token)

    def journal_answer(self, message: MessageId, text: str) -> bool:
        """Keep the whole text of a streaming answer so far. False when it does not stream any more."""
        with self._database.write() as connection:
            return journal.write(connection, message, text)

    def finish_answer(
        self,
        message: MessageId,
        text: str,
        status: MessageStatus,
        *,
        passages: Sequence[Passage] = (),
        citations: Sequence[str] = (),
        figures: Figures | None = None,
    ) -> Message:
        """The answer's last text and how it ended; the same transaction queues both sides of the turn."""
        with self._database.write() as connection:
            return journal.finish(connection, message, text, status, passages, citations, figures)

    def recover(self) -> list[Message]:
        """Make answers whose program died INTERRUPTED, with their journalled text, and return them.

        For the owner, at start. Answers that stream in a living program, this one or another, are left alone.
        Also queues what a crash kept from the outbox, gives items at rest their attempts back, and scrubs what was
        deleted and not scrubbed.
        """
        self.scrub()
        own = self._writer.token if self._writer is not None else None
        with self._database.write() as connection:
            return journal.recover(connection, lambda token: token == own or writer_is_alive(self._folder, token))

    def _become_writer(self) -> Writer:
        with self._writer_lock:
            if self._writer is None:
                with in_words(self._folder):
                    self._writer = Writer(self._folder)
            return self._writer

    # --- favourites

    def star(self, message: MessageId, starred: bool) -> Message:
        """Star or unstar a message."""
        with self._database.write() as connection:
            return favorites.star(connection, message, starred)

    def favorites(self) -> list[Message]:
        """Starred messages, the last starred first."""
        with self._database.read() as connection:
            return favorites.favorites(connection)

    # --- pins

    def pin(self, message: MessageId, pinned: bool) -> Message:
        """Pin a message to the window of every chat whose path it is on, or unpin it."""
        with self._database.write() as connection:
            return pins.pin(connection, message, pinned)

    def pinned(self, chat: ChatId) -> list[Message]:
        """The pinned messages on the chat's path, oldest first."""
        with self._database.read() as connection:
            return pins.pinned(connection, chat)

    # --- bases

    def add_to_base(self, name: str, paths: Sequence[str]) -> Base:
        """Put absolute paths into a knowledge base, made when there is none of that name."""
        with self._database.write() as connection:
            return bases.add(connection, name, paths)

    def remove_base(self, name: str) -> Base:
        """Dissolve a base; its files stay."""
        with self._database.write() as connection:
            return bases.remove(connection, name)

    def bases(self) -> list[Base]:
        """Every base, by name."""
        with self._database.read() as connection:
            return bases.listed(connection)

    def choose_bases(self, chat: ChatId, names: Sequence[str]) -> tuple[Base, ...]:
        """Have a chat search these bases only; everything for none."""
        with self._database.write() as connection:
            return bases.choose(connection, chat, names)

    def bases_of(self, chat: ChatId) -> tuple[Base, ...]:
        """The bases that a chat searches; none: everything."""
        with self._database.read() as connection:
            return bases.of_chat(connection, chat)

    # --- documents

    def set_document(self, staged: str, document: DocumentId) -> int:
        """The staged file has become this document; the number of attachments that learnt it."""
        with self._database.write() as connection:
            return messages.set_document(connection, staged, document)

    def chat_documents(self, chat: ChatId) -> tuple[DocumentId, ...]:
        """Documents attached on the chat's path, in the order they came."""
        with self._database.read() as connection:
            return messages.chat_documents(connection, chat)

    def is_attached(self, document: DocumentId) -> bool:
        """Whether a message has this document attached."""
        with self._database.read() as connection:
            return messages.is_attached(connection, document)

    def staged(self) -> frozenset[str]:
        """Every staged copy that a message has attached, or that waits to be read."""
        with self._database.read() as connection:
            attached = connection.execute("SELECT DISTINCT staged FROM attachments").fetchall()
            waiting = outbox.kept(connection, OutboxKind.INGEST)
        return frozenset(
            [str(staged) for (staged,) in attached] + [IngestPayload.from_key(i.key).staged for i in waiting]
        )

    def delete_document(self, document: DocumentId) -> tuple[str, ...]:
        """Detach a document everywhere, take its words out of what was recalled from it, and ask the memory to forget
        it; the staged copies to remove."""
        with self._database.erase() as connection:
            staged = messages.delete_document(connection, document)
            redact.redact(connection, set(), {document})
            outbox.enqueue(connection, OutboxKind.FORGET, outbox.forget_key(ForgetRequest(document)))
        self.scrub()
        return staged

    # --- outbox

    def enqueue(self, kind: OutboxKind, key: str) -> None:
        """Put work for the memory into the outbox; the same work twice is there once, at the end."""
        with self._database.write() as connection:
            outbox.enqueue(connection, kind, key)

    def enqueue_ingest(self, payload: IngestPayload) -> None:
        """Put a staged file into the outbox."""
        self.enqueue(OutboxKind.INGEST, payload.to_key())

    def pending(self, limit: int = 16) -> list[OutboxItem]:
        """Up to `limit` items to work on, oldest first; one that failed MOST_ATTEMPTS times rests."""
        with self._database.read() as connection:
            return outbox.pending(connection, limit)

    def kept(self, kind: OutboxKind) -> list[OutboxItem]:
        """Every item of a kind that is not done, oldest first, those at rest included."""
        with self._database.read() as connection:
            return outbox.kept(connection, kind)

    def done(self, item: int) -> None:
        """Take an item out; twice is harmless."""
        with self._database.write() as connection:
            outbox.done(connection, item)

    def failed(self, item: int, error: str) -> None:
        """Count a failed attempt at an item."""
        with self._database.write() as connection:
            outbox.failed(connection, item, error)

    def remembered(self, message: MessageId) -> RememberedMessage | None:
        """A REMEMBER item's message as the memory takes it; None when it was deleted meanwhile."""
        with self._database.read() as connection:
            found = messages.get(connection, message)
            if found is None:
                return None
            chat = chats.home(connection, message)
        return RememberedMessage(
            chat=found.chat,
            chat_title="" if chat is None else chat.title,
            message=found.id,
            parent=found.parent,
            role=found.role,
            text=found.text,
            time=found.created,
        )

    # --- export

    def export_markdown(self, chat: ChatId) -> str:
        """The chat's path as Markdown."""
        with self._database.read() as connection:
            row = chats.need(connection, chat)
            path = messages.path(connection, chat, None, None)
            quotes = {m.quote for m in path if m.quote is not None}
            quoted = {id_: messages.need(connection, id_) for id_ in quotes}
        return export.to_markdown(row, path, quoted)

    def export_json(self, chat: ChatId) -> str:
        """The chat's path as JSON."""
        with self._database.read() as connection:
            row = chats.need(connection, chat)
            path = messages.path(connection, chat, None, None)
        return export.to_json(row, path)
