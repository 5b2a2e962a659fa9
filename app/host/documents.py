"""Files on their way into the memory, and the list of those in it, as they pass to its child and back. See
`app.host.wire`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from app.ids import DocumentId, JobId


class Refusal(StrEnum):
    """How the reading of a file fails for good: trying again cannot mend it. The names of the memory's errors."""

    UNREADABLE = "IngestError"
    PASSWORD = "NeedsPasswordError"
    UNSUPPORTED = "UnsupportedFileError"
    DAMAGED = "DamagedFileError"
    NO_TEXT = "NoTextError"


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """Read one file into the memory. `path` is where the bytes are now, `origin` the path the person gave."""

    job: JobId
    path: str
    name: str
    origin: str
    password: str = field(default="", repr=False)
    """What opens an encrypted file. It is in no store: a file that waits over a restart asks again."""


@dataclass(frozen=True, slots=True)
class ForgetPath:
    """The file at this path is gone: forget its document, unless that stands at another path as well. Answered by the
    documents forgotten."""

    origin: str


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """`phase` is one of read, ocr, embed, store; `done` of `total` units (pages or passages)."""

    job: JobId
    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """The file is searchable. `warnings` names every page that could not be read; `confidence` is how sure OCR was,
    0..100, None when nothing was a picture."""

    job: JobId
    document: DocumentId
    name: str
    kind: str
    pages: int | None
    passages: int
    already_known: bool
    warnings: tuple[str, ...]
    confidence: float | None = None
    replaced: tuple[DocumentId, ...] = ()
    """Documents that stood at the same path before, and are forgotten."""
    left: int = 0
    """Pages that are still to be read: the same request again goes on with them."""


@dataclass(frozen=True, slots=True)
class ListDocuments:
    """Ask for every ingested document."""


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """One ingested document."""

    id: DocumentId
    name: str
    origin: str
    kind: str
    pages: int | None
    passages: int
    added: float
    also: tuple[str, ...] = ()
    """Other paths of the same file."""
