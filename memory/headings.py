"""The headings of a Markdown text and where they stand. One walk over its lines: markdown-it's takes the square of a
list's length (28 s for 100,000 items), and only headings and fences matter here."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}(?:={2,}|-{2,})[ \t]*\Z")
"""Makes a heading of the line above it, where that is a paragraph of its own."""
_TITLE = re.compile(r" {0,3}(?![-=#>|+*~`\s]|\d{1,9}[.)][ \t])\S")
_FENCE = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*(`{3,}(?=[^`]*\Z)|~{3,})(.*)")
"""A code fence, also one in a quotation or at a list's item."""


def headings(text: str) -> list[tuple[int, str]]:
    """Each heading's offset and words, in order. A `#` inside a code fence is a comment; what a fence that is never
    closed holds is taken for text."""
    found: list[tuple[int, str]] = []
    held = 0
    open_fence = ""
    above: tuple[int, str] | None = None
    blank = True
    for start, line in _lines(text):
        fence = _FENCE.match(line)
        if above is not None and not open_fence and _UNDERLINE.match(line):
            found.append(above)
        above = (start, line.strip()) if blank and fence is None and _TITLE.match(line) else None
        blank = not line.strip() or _HEADING.match(line) is not None
        if fence is not None and not open_fence:
            open_fence, held = fence.group(1), len(found)
        elif fence is not None and fence.group(1).startswith(open_fence) and not fence.group(2).strip():
            del found[held:]
            open_fence = ""
        elif words := _words(line):
            found.append((start, words))
    return found


def is_underline(line: str) -> bool:
    """Whether a line can make a heading of the line above it."""
    return _UNDERLINE.match(line) is not None


def _words(line: str) -> str:
    match = _HEADING.match(line)
    if match is None:
        return ""
    words = match.group(1).strip()
    bare = words.rstrip("#")
    return bare.rstrip() if bare != words and (not bare or bare[-1] in " \t") else words


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1
