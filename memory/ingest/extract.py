"""What a reader is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from memory.chunking import Layout, Section
from memory.types import IngestCancelledError, OnProgress, Progress


class Format(StrEnum):
    """Kinds of file that can be read."""

    PDF = "pdf"
    IMAGE = "image"
    WORD = "word"
    SLIDES = "slides"
    TABLE = "table"
    BOOK = "book"
    PAGE = "page"
    MAIL = "mail"
    NOTEBOOK = "notebook"
    MARKDOWN = "markdown"
    CODE = "code"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Job:
    """One file to read. `path` is where its bytes are, `name` what people call it."""

    path: Path
    name: str
    ocr_languages: str
    on_progress: OnProgress
    cancelled: Callable[[], bool]
    password: str = field(default="", repr=False)
    """What opens the file when it is encrypted; it is kept nowhere."""
    pages: tuple[int, ...] = ()
    """Only these, which an earlier reading left; all when empty."""
    thumbnail: int = 0
    """Longer side, in pixels, of the small copy that is wanted of a picture; 0: none is."""

    def step(self, phase: str, done: int, total: int) -> None:
        """Report progress. Raises IngestCancelledError when the person has stopped this file."""
        if self.cancelled():
            raise IngestCancelledError(f"Stopped reading {self.name}: nothing of it was kept.")
        self.on_progress(Progress(phase, done, total))


@dataclass(frozen=True, slots=True)
class Extract:
    """The text of a file. `pages` is None for kinds without pages; `warnings` names every page not read."""

    format: Format
    sections: tuple[Section, ...]
    pages: int | None = None
    warnings: tuple[str, ...] = ()
    layout: Layout = Layout.PLAIN
    left: tuple[int, ...] = ()
    """Pages that are still to be read (see Job.pages): OCR takes seconds for each."""
    thumbnail: bytes = field(default=b"", repr=False)
    """A small copy of a picture, as JPEG, where it was wanted."""

    @property
    def confidence(self) -> float | None:
        """How sure OCR was, the mean of the pages it read, 0..100; None when it read none."""
        sure = [section.confidence for section in self.sections if section.confidence is not None]
        return sum(sure) / len(sure) if sure else None


Reader = Callable[[Job], Extract]
