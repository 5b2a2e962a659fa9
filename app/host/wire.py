"""What passes between the UI process and its two children: plain frozen dataclasses, standard library only.

The children translate these to and from their own types, so that the UI process never imports either of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from time import localtime, strftime, time

from app.host.sampling import FinishReason, Sampling
from app.ids import ChatId, DocumentId, MessageId


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message exactly as the model reads it (a recalled block included)."""

    id: MessageId
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the engine child loads and may take, where its tokenizer goes, and the switch of a template that has one."""

    model: str
    quota_tokens: int
    page_size: int
    kv_format: str
    policy: str
    sessions: int
    device: str
    threads: int
    tokenizer_file: str
    host_bytes: int
    guess_tokens: int
    thinking: bool = False
    weights: str = "auto"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Pushed before a model is loaded: the bytes that it and the chats' pages may take, and what is free."""

    weights_bytes: int
    kv_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Pushed while a child starts: `done` of `total` steps (layers, or passages being embedded anew)."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The model that was loaded, and what it costs; `free_bytes` of its device were free before. `kernels_late` is True
    when the CPU's kernels were still being compiled: products of weights in 8 or 4 bits are slower until they are, and
    weights that would be held as the file does are held in full until the next start."""

    model_name: str
    family: str
    parameters: int
    weights_bytes: int
    kv_bytes_per_token: int
    quota_tokens: int
    pool_bytes: int
    device: str
    dtype: str
    load_seconds: float
    free_bytes: int
    kernels_late: bool


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Answer the last of `messages` (a user message). `messages` is the tail of the chat's path, oldest first; `pinned`
    are those of the whole path that stay in the window."""

    chat: ChatId
    system: str
    messages: tuple[PromptMessage, ...]
    answer: MessageId
    sampling: Sampling
    pinned: tuple[PromptMessage, ...]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is pinned to a chat's window changed: read the chat, `messages` and `pinned` as in GenerateRequest, before
    its next question comes. PrefillProgress tells first that it can be, with nothing done; the answer is the
    WindowView when all is read, or None when something else came first."""

    chat: ChatId
    system: str
    messages: tuple[PromptMessage, ...]
    pinned: tuple[PromptMessage, ...]


@dataclass(frozen=True, slots=True)
class WindowSegment:
    """One message's share of the window. `message` None is the system prompt; `pinned` ones are sinks as well."""

    message: MessageId | None
    visible_tokens: int
    total_tokens: int
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class WindowView:
    """What the model can see right now, counted by the engine in the model's own tokens: `pinned_tokens` of the sinks
    are messages that were pinned, `ring_tokens` is the ring's capacity, `visible_tokens` the sinks and the visible part
    of the ring, `position` all tokens read and written so far, `next_eviction_tokens` those until the next page is
    recycled. Of all chats: `host_bytes` hold pages of past windows, and `found_tokens` were taken up from such pages
    instead of being computed."""

    chat: ChatId
    quota_tokens: int
    sink_tokens: int
    pinned_tokens: int
    ring_tokens: int
    visible_tokens: int
    position: int
    evicted_tokens: int
    next_eviction_tokens: int
    page_size: int
    quota_bytes: int
    host_bytes: int
    host_capacity_bytes: int
    found_tokens: int
    format: str
    tokens_per_second: float
    segments: tuple[WindowSegment, ...]


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """How much of the prompt has been read."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Delta:
    """New text of the answer; always whole characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """Positions [first, last] have just left the window; `messages` are those with no visible token left."""

    first: int
    last: int
    messages: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer, with what it cost."""

    reason: FinishReason
    prompt_tokens: int
    """Tokens computed for this turn's prompt (not those already in the window)."""
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float


EngineEvent = PrefillProgress | Delta | Evicted | WindowView | Finished


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """Ask for a chat's window; the answer is a WindowView, or None when the engine holds no session for it."""

    chat: ChatId


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """Read a chat up to `messages`; then comes `question` with up to `block_tokens` of recalled text, or as many as
    `recall_room.most_recalled` allows. See Prepared."""

    chat: ChatId
    system: str
    messages: tuple[PromptMessage, ...]
    question: str
    block_tokens: int
    pinned: tuple[PromptMessage, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """`whole`: the messages that will still be in the window, in full, when the answer begins. `ring_tokens`: what the
    system prompt and the pinned messages leave of the window."""

    whole: tuple[MessageId, ...]
    ring_tokens: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Give a chat's pages back."""

    chat: ChatId


class SourceKind(StrEnum):
    """Where a passage comes from."""

    CHAT = "chat"
    DOCUMENT = "document"
    WEB = "web"


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """What the memory child opens; `image_embedder` is empty where no model says what pictures show."""

    folder: str
    embedder: str
    ocr_languages: str
    image_embedder: str = ""


@dataclass(frozen=True, slots=True)
class MemoryReady:
    """The memory is open: what it holds."""

    documents: int
    passages: int
    embedder: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of stored text with its place. `label` is the short id that the answer may cite, such as "1"."""

    id: str
    label: str
    source_id: str
    source_kind: SourceKind
    title: str
    text: str
    score: float
    time: float
    path: str | None = None
    page: int | None = None
    line: int | None = None
    message: MessageId | None = None
    role: str | None = None
    confidence: float | None = None
    """How sure OCR was of the page, 0..100; None for text that was read as text."""
    heading: str = ""
    also: tuple[str, ...] = ()
    """Other paths at which the same file was given."""
    turns: tuple[MessageId, ...] = ()
    """What a digest sums up: a passage with the role "digest", that `maker` wrote."""
    maker: str = ""

    def place(self) -> str:
        """Where it stands, for people: "report.pdf, page 2 (OCR, 91 % sure)" or "chat Trip, 3 Nov 14:02"."""
        return self._stands() + (f" (OCR, {self.confidence:.0f} % sure)" if self.confidence is not None else "")

    def _stands(self) -> str:
        if self.source_kind is SourceKind.WEB:
            return f"{self.title}, {self.path}"
        if self.source_kind is SourceKind.CHAT:
            when = strftime("%Y-%m-%d %H:%M", localtime(self.time))
            what = f"summary by {self.maker} of chat" if self.turns else "chat"
            return f"{what} {self.title or 'untitled'}, {when}"
        file = f"{self.title} (also {', '.join(self.also)})" if self.also else self.title
        if self.page is not None:
            return f"{file}, page {self.page}"
        under = f"{file}, {self.heading}" if self.heading else file
        return f"{under}, line {self.line}" if self.line is not None else under


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """Find what the next answer may need and the window no longer holds."""

    question: str
    chat: ChatId
    visible: tuple[MessageId, ...]
    """Messages the model sees in full: never recalled again."""
    delivered: tuple[str, ...]
    """Passages in the recalled blocks of those messages: in the window as well."""
    path: tuple[MessageId, ...]
    """Messages of this chat's path: what "this chat" means for a fork."""
    attached: tuple[DocumentId, ...]
    """Documents dropped into this message."""
    chat_documents: tuple[DocumentId, ...]
    """Documents dropped into this chat so far."""
    earlier: tuple[str, ...]
    """What the person asked before in this chat, oldest first."""
    budget_tokens: int
    tokenizer_file: str
    bases: tuple[str, ...] = ()  # absolute paths that hold all documents to search, but for those of this chat
    asked: float = field(default_factory=time)  # Unix seconds: what "yesterday" is seen from


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was decided, why, and the passages with the fenced block that goes into the prompt ("" when none)."""

    scope: str
    reason: str
    query: str
    passages: tuple[Passage, ...]
    block: str
    block_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CiteRequest:
    """Which of the delivered passages does this answer use?"""

    question: str
    answer: str
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class Cited:
    """The answer with undelivered citation marks removed, and the labels it rests on, strongest first."""

    answer: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RememberedMessage:
    """One chat message on its way into the memory."""

    chat: ChatId
    chat_title: str
    message: MessageId
    parent: MessageId | None
    role: Role
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class RememberRequest:
    """Store these messages; idempotent by content id. The answer is the number of new passages."""

    messages: tuple[RememberedMessage, ...]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Search everything (or one kind of source)."""

    query: str
    limit: int = 10
    kind: SourceKind | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Passages, best first."""

    passages: tuple[Passage, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Remove a source's text, vectors and index rows: a chat id, a document id, or single messages of a chat."""

    source_id: str
    messages: tuple[MessageId, ...] = ()
