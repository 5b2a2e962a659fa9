"""What the desk tells its listeners (the screen, the command line). Plain dataclasses; no terminal, no engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from app.host.wire import EngineReady, Passage, WindowView
from app.ids import ChatId, DocumentId, JobId, MessageId
from app.store.types import Message


class Severity(StrEnum):
    """How loudly a notice is shown."""

    INFO = "information"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the person: what happened and what to do. Never markup."""

    text: str
    severity: Severity = Severity.INFO


class ModelPhase(StrEnum):
    """Where the start-up of the models stands."""

    FETCHING = "fetching"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Part(StrEnum):
    """What is fetched and loaded: the engine's model; the embedder and the store of the memory."""

    MODEL = "model"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class ModelState:
    """Progress of fetching and loading. `done` of `total` are bytes while fetching, layers while the model loads,
    passages while the memory indexes anew (which it also does when READY); 0 when there is nothing to count."""

    part: Part
    phase: ModelPhase
    text: str
    done: int = 0
    total: int = 0
    engine: EngineReady | None = None


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message was committed to the chat (user message, or an answer that has just begun)."""

    chat: ChatId
    message: Message


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """Texts typed while an answer runs or the model loads, oldest first."""

    chat: ChatId
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecallShown:
    """What recall decided for a user message, and the passages put into the prompt."""

    chat: ChatId
    message: MessageId
    scope: str
    reason: str
    passages: tuple[Passage, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """The prompt is being read: `done` of `total` tokens."""

    chat: ChatId
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """New text at the end of a streaming answer."""

    chat: ChatId
    message: MessageId
    text: str


@dataclass(frozen=True, slots=True)
class AnswerDone:
    """The answer is complete or stopped; `message` has its final text, status, citations and figures."""

    chat: ChatId
    message: Message


@dataclass(frozen=True, slots=True)
class TurnsOver:
    """Nothing of this chat is being answered any more; the last question may have been left without an answer."""

    chat: ChatId


@dataclass(frozen=True, slots=True)
class WindowChanged:
    """The window moved. Messages without a visible token are evicted: text only."""

    chat: ChatId
    window: WindowView


class JobPhase(StrEnum):
    """Where the ingestion of one file stands."""

    WAITING = "waiting"
    READING = "read"
    OCR = "ocr"
    EMBEDDING = "embed"
    STORING = "store"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class IngestJob:
    """One file on its way into the memory. `detail` is the error, or a warning, as one sentence."""

    id: JobId
    chat: ChatId | None
    name: str
    phase: JobPhase
    done: int = 0
    total: int = 0
    document: DocumentId | None = None
    passages: int = 0
    detail: str = ""
    confidence: float | None = None
    """How sure OCR was of what it read, 0..100; None when nothing was a picture."""
    needs_password: bool = False
    """It failed because it is encrypted: give its password to `unlock`."""


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A file's ingestion moved on."""

    job: IngestJob


@dataclass(frozen=True, slots=True)
class ChatsChanged:
    """A chat was made, renamed, forked or deleted."""


@dataclass(frozen=True, slots=True)
class SummingUp:
    """The model sums up, in the background, what left the window of a chat with this title; None: it is over."""

    title: str | None


Event = (
    Notice
    | SummingUp
    | ModelState
    | MessageAdded
    | QueueChanged
    | RecallShown
    | PromptProgress
    | AnswerDelta
    | AnswerDone
    | TurnsOver
    | WindowChanged
    | JobChanged
    | ChatsChanged
)

Listener = Callable[[Event], None]
"""Called on the event loop's thread; must not block."""
