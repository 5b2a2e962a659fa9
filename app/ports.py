"""What the screens and the command line may ask of the desk. Every method returns soon and never blocks the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.drop.fetch import Url
from app.errors import PersonError
from app.events import IngestJob, Listener, ModelState
from app.host.documents import DocumentInfo
from app.host.wire import Passage, SearchResult, SourceKind, WindowView
from app.ids import ChatId, JobId, MessageId
from app.store.types import Attachment, Base, Chat, Message


@dataclass(frozen=True, slots=True)
class ChatView:
    """An opened chat: its row and the tail of its path, oldest first."""

    chat: Chat
    messages: tuple[Message, ...]
    earlier: int
    """How many messages stand before `messages` (load them with `earlier_messages`)."""
    window: WindowView | None
    queue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a pasted text turned out to be: files (staged, being ingested), plain text, or a drop that names nothing."""

    attachments: tuple[Attachment, ...] = ()
    text: str = ""
    """Text to insert when it was no drop."""
    explanation: str = ""
    """One sentence when it looked like a drop but no such file exists."""


class DeskPort(Protocol):
    """The headless application."""

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every event from now on, on the loop's thread."""

    async def start(self) -> None:
        """Open the store, recover what a crash left, begin fetching and loading models. Returns at once."""

    async def close(self) -> None:
        """Stop answers (partials are kept), end the children, close the store."""

    @property
    def models(self) -> tuple[ModelState, ...]:
        """The latest state of the engine's model and of the memory."""

    @property
    def jobs(self) -> tuple[IngestJob, ...]:
        """Every ingestion of this run, newest last."""

    async def chats(self) -> list[Chat]:
        """All chats, most recently used first."""

    async def new_chat(self) -> ChatView:
        """A chat without messages; it is stored with its first message."""

    async def open_chat(self, chat: ChatId) -> ChatView:
        """Open a stored chat. Raises DeskError when there is none."""

    async def earlier_messages(self, chat: ChatId, before: MessageId, limit: int) -> list[Message]:
        """Up to `limit` messages of the path before `before`, oldest first."""

    async def send(
        self, chat: ChatId, text: str, *, attachments: tuple[Attachment, ...] = (), quote: MessageId | None = None
    ) -> None:
        """Commit a user message and have it answered; queued while an answer runs or the model loads."""

    async def resume(self, chat: ChatId) -> None:
        """Answer what an earlier run left waiting in a stored chat."""

    async def unqueue(self, chat: ChatId) -> str | None:
        """Take the newest queued text back; None when there is none."""

    async def stop(self, chat: ChatId) -> bool:
        """Stop the running answer, keeping what there is. False when none runs."""

    async def drop(self, chat: ChatId, pasted: str) -> Dropped:
        """Read a paste: files are staged and ingested in the background, anything else comes back as text."""

    async def attach(self, chat: ChatId, path: Path | Url) -> Attachment:
        """Stage one file, or fetch a page, and ingest it in the background. Raises DeskError with one sentence."""

    async def unlock(self, job: JobId, password: str) -> None:
        """Read a file again that needed a password."""

    async def star(self, message: MessageId, starred: bool) -> Message:
        """Star or unstar a message."""

    async def pin(self, chat: ChatId, message: MessageId) -> Message:
        """Keep a message in the chat's window. Raises DeskError when too much is pinned; nothing is changed then."""

    async def unpin(self, chat: ChatId, message: MessageId) -> Message:
        """Let a message leave the chat's window as any other does."""

    async def favorites(self) -> list[Message]:
        """Starred messages, newest first."""

    async def fork(self, chat: ChatId, message: MessageId) -> ChatView:
        """A new chat that shares the path up to and including `message`."""

    async def rename(self, chat: ChatId, title: str) -> None:
        """Name a chat."""

    async def delete(self, chat: ChatId) -> None:
        """Delete a chat's own messages and have the memory forget them."""

    async def search(self, query: str, *, kind: SourceKind | None = None, limit: int = 20) -> SearchResult:
        """Search chats and documents; only the words of the chats while the memory is not up. Raises DeskError."""

    async def bases(self, chat: ChatId) -> tuple[tuple[Base, ...], list[Base]]:
        """The bases that a chat searches (none: everything), and all there are, by name."""

    async def search_web(self, question: str) -> tuple[Attachment, ...]:
        """What the search engine of the settings finds, to be sent with the question. Raises DeskError, when that is
        switched off as well."""

    async def choose_bases(self, chat: ChatId, names: Sequence[str]) -> tuple[Base, ...]:
        """Have a chat search these bases and the chats only; everything for none, or for "all". Raises DeskError."""

    async def documents(self) -> list[DocumentInfo]:
        """Everything ingested."""

    async def export(self, chat: ChatId) -> str:
        """The chat as Markdown."""

    async def sources(self, message: MessageId) -> tuple[Passage, ...]:
        """The passages that went with a message's prompt (user) or that its answer had (assistant)."""


class DeskError(PersonError):
    """One sentence for the person: what was wrong and what to do."""
