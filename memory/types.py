"""What passes in and out of the memory. Standard library only, so that it costs nothing to import."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

SourceId = NewType("SourceId", str)
"""A chat id or a document id (the content hash of the file's bytes)."""
PassageId = NewType("PassageId", str)
"""Content id: hash of source, place and text, so storing twice is storing once."""

TokenCounter = Callable[[str], int]
"""Counts a text in the chat model's own tokens."""


class SourceKind(StrEnum):
    """Where a passage comes from."""

    CHAT = "chat"
    DOCUMENT = "document"
    WEB = "web"
    """What a web search found; it expires."""


@dataclass(frozen=True, slots=True)
class Source:
    """A chat or a document."""

    id: SourceId
    kind: SourceKind
    title: str
    """File name, or the chat's title."""
    origin: str = ""
    """The path the person gave (documents)."""
    also: tuple[str, ...] = ()
    """Other paths at which the same bytes were given."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in its source a passage stands: 1-based page, 1-based line, or message id; `start`/`end` are
    offsets in characters into the page's or the file's extracted text."""

    page: int | None = None
    line: int | None = None
    message: str | None = None
    start: int = 0
    end: int = 0
    heading: str = ""
    """What it stands under: chapter and section, sheet, attachment, class and method."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of stored text that knows its source, place, time and content hash."""

    id: PassageId
    source: Source
    place: Place
    ordinal: int
    """Running number inside the source: neighbours are ordinal ± 1."""
    time: float
    """Unix seconds: of the message, or of the file's ingestion."""
    text: str
    role: str | None = None
    """Who said it: user or assistant; "digest" sums up `turns`; None in documents."""
    confidence: float | None = None
    """How sure OCR was of the page or picture, 0..100; None for text that was read as text."""
    turns: tuple[str, ...] = ()
    """The messages that a digest sums up, in order."""
    maker: str = ""
    """Who wrote a digest: the name of a model, or "extract" where its words are those of the talk."""


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message to remember."""

    chat: SourceId
    chat_title: str
    id: str
    parent: str | None
    role: str
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found, with its fused score and the normalised score of each leg (0..1)."""

    passage: Passage
    score: float
    dense: float
    lexical: float


class Scope(StrEnum):
    """Where recall looks."""

    NOTHING = "nothing"
    CHAT = "this chat"
    CHATS = "all chats"
    DOCUMENTS = "documents"
    FILE = "a named file"
    EVERYTHING = "everything"
    WEB = "the web"
    """What was just found there, for this question."""
    TALKS = "what was talked about"
    """The digests of the days that the question names."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What recall decided and why, in words a person understands."""

    scope: Scope
    reason: str
    query: str
    sources: tuple[SourceId, ...] = ()
    """The named or attached sources, when scope is FILE."""
    must: bool = False
    """The question itself asks for stored things: the bar is low, and when nothing passes it the model is told so."""
    own: bool = False
    """The question speaks of the person's own things: the bar is lower than for the world's."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A question and what is already known about its surroundings."""

    question: str
    chat: SourceId
    visible: frozenset[str] = frozenset()
    """Message ids the model sees in full: never recalled again."""
    delivered: frozenset[str] = frozenset()
    """Passage ids that stand in the recalled blocks of visible messages: in the window as well."""
    path: tuple[str, ...] = ()
    """Message ids of this chat's path (a fork shares messages with other chats)."""
    attached: tuple[SourceId, ...] = ()
    """Documents dropped into this very message."""
    chat_documents: tuple[SourceId, ...] = ()
    """Documents dropped into this chat so far."""
    earlier: tuple[str, ...] = ()
    """What the person asked before in this chat, oldest first; when empty, the questions of `path` that the memory
    holds already."""
    budget_tokens: int = 600
    asked: float = field(default_factory=time.time)
    """Unix seconds at which it was asked: what "yesterday" is seen from."""
    expired: frozenset[SourceId] = frozenset()
    """Sources whose day is over: as if they were not there."""
    documents: frozenset[SourceId] | None = None
    """Of documents, only these are searched, and those of this chat; None: all of them."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """One passage that recall weighed. `by_meaning` and `by_words` are its places in the two legs, counted from 1, None
    where a leg did not find it; `nearness` had to reach `bar`."""

    passage: Passage
    by_meaning: int | None
    by_words: int | None
    cosine: float
    score: float
    nearness: float
    bar: float
    delivered: int | None
    """Its label, or None."""
    fate: str
    """What became of it, in words a person understands."""


@dataclass(frozen=True, slots=True)
class Trace:
    """How recall came to its passages: what was searched for, how much meaning counted against words (0..1), how many
    passages were found, and the best of them with what became of each, best score first."""

    query: str
    terms: tuple[str, ...]
    dense_weight: float
    found: int
    weighed: tuple[Weighed, ...]
    budget_tokens: int


@dataclass(frozen=True, slots=True)
class Recall:
    """The decision, the passages delivered (labelled 1, 2, … in order) and the fenced block for the
    prompt."""

    decision: Decision
    hits: tuple[Hit, ...] = ()
    block: str = ""
    block_tokens: int = 0
    seconds: float = 0.0
    trace: Trace | None = None
    """None where nothing was searched."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Ingestion moves: `phase` is read, ocr, embed or store; `done` of `total` units."""

    phase: str
    done: int
    total: int


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """A file is searchable. `warnings` names every page that could not be read, one sentence each."""

    source: Source
    kind: str
    """pdf, image, word, slides, table, book, page, mail, notebook, markdown, code or text."""
    pages: int | None
    passages: int
    already_known: bool = False
    warnings: tuple[str, ...] = field(default=())
    confidence: float | None = None
    """How sure OCR was of what it read, the mean of its pages, 0..100; None when nothing was a picture."""
    replaced: tuple[SourceId, ...] = ()
    """Documents that stood at the same path before, and are forgotten."""
    left: int = 0
    """Pages that are still to be read: ingest the file again, as often as there are some."""


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One ingested document as listed to people."""

    source: Source
    kind: str
    pages: int | None
    passages: int
    added: float


class RecallError(Exception):
    """Base of the memory's errors; the message is one sentence for the person."""


class IngestError(RecallError):
    """A file was not read; the classes below say how it ended."""


class NeedsPasswordError(IngestError):
    """The file is encrypted, and no password or a wrong one was given."""


class UnsupportedFileError(IngestError):
    """No reader takes this kind of file, or one as large as this."""


class DamagedFileError(IngestError):
    """The file is corrupt or cut off, or reading it took down or outlasted the reader."""


class NoTextError(IngestError):
    """The file is sound and there is nothing in it to read."""


class MemoryLockedError(RecallError):
    """Another process owns the memory folder."""


class IngestCancelledError(IngestError):
    """The person stopped an ingestion; nothing of the file was kept."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the memory holds. `unindexed` passages have no vector yet: they are found by their words only."""

    documents: int
    chats: int
    passages: int
    unindexed: int
    embedder: str
    problem: str = ""
    """Why search goes by words only, as one sentence; empty while all is well."""
