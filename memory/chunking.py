"""Cut extracted text into passages at semantic borders, sized by the embedder's own tokenizer, with exact
offsets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from memory.headings import headings, is_underline

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SHARE = 180 / 256
"""Of the tokens that the embedder reads; the rest is room for the heading."""
_LEAST_TOKENS, MOST_TOKENS = 32, 360
"""Some models read 8,192: a passage as long as that is about many things, and takes the whole of a prompt."""
_STRETCH = 50_000
"""Characters that are cut at one go, a tenth of a second."""
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

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter

        self._plain = TextSplitter.from_huggingface_tokenizer(tokenizer, max_tokens)
        self._markdown = MarkdownSplitter.from_huggingface_tokenizer(tokenizer, max_tokens)
        self._cap = TextSplitter(_MAX_CHARACTERS)

    def chunks(self, section: Section, layout: Layout = Layout.PLAIN) -> list[Chunk]:
        """Cut one section; blank pieces are left out."""
        return [chunk for some in self.stretches(section, layout) for chunk in some]

    def stretches(self, section: Section, layout: Layout = Layout.PLAIN) -> Iterator[list[Chunk]]:
        """Cut one section, stretch by stretch: whoever stops in between is not kept waiting by a long one."""
        titles = headings(section.text) if layout is Layout.MARKDOWN else []
        borders = [start for start, _ in titles]
        line, counted, first = section.line, 0, 0
        while first < len(section.text):
            end = _border(section.text, first, borders)
            pieces = [(first + at, text) for at, text in self._pieces(section.text[first:end], layout)]
            within = titles[bisect_left(borders, first) : bisect_left(borders, end)]
            pieces = _under_headings(section.text, pieces, within)
            some, line, counted = _placed(section, titles, pieces, line, counted)
            yield some
            first = end

    def _pieces(self, text: str, layout: Layout) -> Iterator[tuple[int, str]]:
        splitter = self._markdown if layout is Layout.MARKDOWN else self._plain
        for start, part in splitter.chunk_indices(text):
            if len(part) <= _MAX_CHARACTERS:
                yield start, part
            else:
                yield from ((start + at, piece) for at, piece in self._cap.chunk_indices(part))


def _placed(
    section: Section,
    titles: list[tuple[int, str]],
    pieces: list[tuple[int, str]],
    line: int | None,
    counted: int,
) -> tuple[list[Chunk], int | None, int]:
    """The pieces that say something, with their places; and the line that was reached, at which offset."""
    out: list[Chunk] = []
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
    return out, line, counted


def _border(text: str, start: int, headings_at: list[int]) -> int:
    """Where a stretch that begins at `start` ends: before a heading, behind a blank line, a line, a word."""
    most = start + _STRETCH
    if most >= len(text):
        return len(text)
    least = start + _STRETCH // 2
    before = bisect_right(headings_at, most)
    if before and headings_at[before - 1] > least:
        return headings_at[before - 1]
    for mark in ("\n\n", "\n", " "):
        if (found := text.rfind(mark, least, most)) >= 0:
            return found + len(mark)
    return most


def chunk_tokens(limit: int) -> int:
    """Tokens of a passage for an embedder that reads `limit` of them."""
    return max(_LEAST_TOKENS, min(MOST_TOKENS, int(limit * _SHARE)))


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
        if line.strip() and at not in begins and not is_underline(line.rstrip("\n")):
            return False
        at += len(line)
    return True
