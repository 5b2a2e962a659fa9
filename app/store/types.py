"""Rows of chats.db as dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.host.wire import Passage, Role
from app.ids import ChatId, DocumentId, MessageId


class MessageStatus(StrEnum):
    """Where a message stands."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    STOPPED = "stopped"
    """The person pressed Esc: the partial answer stays."""
    INTERRUPTED = "interrupted"
    """The program died while it streamed; recovered from the journal."""
    FAILED = "failed"
    LOOPED = "looped"
    """It repeated itself and was ended: what there is of it stays."""
    BLOCKED = "blocked"
    """What the answer must match and what it must not say left no way on."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file dropped into a message. `document` is known once it is ingested."""

    name: str
    origin: str
    staged: str
    document: DocumentId | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What an answer cost."""

    prompt_tokens: int
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float
    model: str


@dataclass(frozen=True, slots=True)
class Message:
    """One node of the message tree."""

    id: MessageId
    chat: ChatId
    """The chat it was written in; forks share it."""
    parent: MessageId | None
    role: Role
    text: str
    created: float
    status: MessageStatus = MessageStatus.COMPLETE
    starred: bool = False
    block: str = ""
    """The recalled block that stood before `text` in the prompt (user messages)."""
    quote: MessageId | None = None
    """The past message this one quotes."""
    attachments: tuple[Attachment, ...] = ()
    passages: tuple[Passage, ...] = ()
    """Passages delivered with this message's prompt (user) or used by this answer (assistant)."""
    citations: tuple[str, ...] = ()
    """Labels of the passages that the answer rests on."""
    figures: Figures | None = None
    pinned: bool = False
    """It stays in the window, see `app.pinning`."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A path in the message tree, named by its last message."""

    id: ChatId
    title: str
    created: float
    updated: float
    head: MessageId | None
    forked_from: MessageId | None = None
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Base:
    """A knowledge base: the documents whose files lie at, or below, one of these absolute paths."""

    name: str
    paths: tuple[str, ...]


class OutboxKind(StrEnum):
    """What waits to reach the memory."""

    REMEMBER = "remember"
    INGEST = "ingest"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """A piece of work for the memory: done at least once, idempotent there, resumed at start."""

    id: int
    kind: OutboxKind
    key: str
    """Message id (remember), IngestPayload as JSON (ingest), source id or ForgetRequest as JSON (forget)."""
    attempts: int
    error: str = ""
