"""Cut extracted text into passages at semantic borders, sized by the embedder's own tokenizer, with exact
offsets."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from memory.headings import headings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENS = 180
"""all-MiniLM-L6-v2 reads 256 tokens; the rest is room for the date, the heading and the turn before."""
_MAX_CHARACTERS = 2000
"""A WordPiece tokenizer counts a run of 100 letters and more as one unknown token: a cap in characters as
well."""
_MAX_HEADINGS = 200
"""Characters of headings that a passage may begin with beyond its size: as many tokens as stay free for it."""


class Layout(StrEnum):
    """How a text is built, hence where it may be cut."""

    PLAIN = "plain"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class Section:
    """A piece of extracted text that is never cut across: a page, a file, a definition, a message. `line` is its
    first line, `start` its offset in the file's text (0 on a page), `heading` what stands above it."""

    text: str
    page: int | None = None
    line: int | None = None
    heading: str = ""
    start: int = 0
    confidence: float | None = None
    """How sure OCR was of it, 0..100; None for text that was read as text."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """`section.text[start:end] == text`, where the section starts at 0; `line` is 1-based in the file; `heading` is
    what the section and its Markdown headings say above it, its own first line among them."""

    text: str
    start: int
    end: int
    page: int | None
    line: int | None
    heading: str = ""
    confidence: float | None = None


class Chunker:
    """Splits sections with semantic-text-splitter. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int = MAX_TOKENS) -> None:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter

        self._plain = TextSplitter.from_huggingface_tokenizer(tokenizer, max_tokens)
        self._markdown = MarkdownSplitter.from_huggingface_tokenizer(tokenizer, max_tokens)
        self._cap = TextSplitter(_MAX_CHARACTERS)

    def chunks(self, section: Section, layout: Layout = Layout.PLAIN) -> list[Chunk]:
        """Cut one section; blank pieces are left out."""
        splitter = self._markdown if layout is Layout.MARKDOWN else self._plain
        pieces: list[tuple[int, str]] = []
        for start, text in splitter.chunk_indices(section.text):
            if len(text) <= _MAX_CHARACTERS:
                pieces.append((start, text))
            else:
                pieces += [(start + inner, part) for inner, part in self._cap.chunk_indices(text)]
        titles = headings(section.text) if layout is Layout.MARKDOWN else []
        pieces = _under_headings(section.text, pieces, titles)
        out: list[Chunk] = []
        line, counted = section.line, 0
        for start, text in pieces:
            if not text.strip():
                continue
            if line is not None:
                line += section.text.count("\n", counted, start)
                counted = start
            before = bisect_right(titles, start, key=lambda title: title[0])
            above = titles[before - 1][1] if before else ""
            # A section that begins with its own heading knows it already.
            known = not above or section.heading == above or section.heading.endswith(f" › {above}")
            heading = section.heading if known else f"{section.heading} › {above}".removeprefix(" › ")
            first = section.start + start
            out.append(Chunk(text, first, first + len(text), section.page, line, heading, section.confidence))
        return out


def _under_headings(text: str, pieces: list[tuple[int, str]], titles: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The pieces, those that are nothing but headings joined to what stands below them: the splitter leaves a heading
    by itself where its section is long, and found by itself it says nothing."""
    begins = {start for start, _ in titles}
    joined: list[tuple[int, str]] = []
    waiting: int | None = None
    for number, (start, piece) in enumerate(pieces):
        first = start if waiting is None else waiting
        end = start + len(piece)
        bare = number + 1 < len(pieces) and end - first <= _MAX_HEADINGS and _is_headings(piece, start, begins)
        waiting = first if bare else None
        if not bare:
            joined.append((first, text[first:end]))
    return joined


def _is_headings(piece: str, start: int, begins: set[int]) -> bool:
    at = start
    for line in piece.splitlines(keepends=True):
        if line.strip() and at not in begins:
            return False
        at += len(line)
    return True
