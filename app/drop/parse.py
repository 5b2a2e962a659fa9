"""What a pasted text may mean as dropped files. Pure: nothing here touches the disk.

A drop reaches a terminal program as a paste of paths, quoted in the way of the terminal (some do not quote at
all). So one text has several readings; `app.drop.classify` asks the disk which of them names what exists.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from app.drop import quoting

LONGEST_DROP = 64 * 1024
"""Characters. A longer paste is text."""
LONGEST_PATH = 4096
"""PATH_MAX of Linux, in bytes; no path has more characters."""
_ROOTED = re.compile(r"/|~|[A-Za-z]:[\\/]|\\\\[^\\]|file:", re.IGNORECASE)
MOST_STARTS = 1000
"""Places at which unquoted names may begin; a text with more is text."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SEPARATOR = re.compile(r"\r\n|[ \t\r\n]")


class Style(StrEnum):
    """How a reading takes the text apart, in the order they are tried."""

    RAW = "the whole text is one name"
    LINES = "one name a line"
    POSIX = "shell quoting"
    ESCAPED_SPACES = "escaped spaces"
    WINDOWS = "double quotes"
    JOINED = "names joined by spaces, not quoted"


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to take a text apart into rooted paths."""

    style: Style
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """A text that may be unquoted names joined by separators, for a search on the disk."""

    text: str
    starts: tuple[int, ...]
    """Places in `text`, at its beginning or after a separator, at which a rooted path may begin."""

    def pieces(self, first: int) -> Iterator[tuple[str, int]]:
        """(name, index of the next start) for names that begin at `starts[first]`, the longest first."""
        begin = self.starts[first]
        for after in range(bisect_right(self.starts, begin + LONGEST_PATH), first, -1):
            end = self.starts[after] if after < len(self.starts) else len(self.text)
            piece = self.text[begin:end]
            if after < len(self.starts):
                piece = piece[:-2] if piece.endswith("\r\n") else piece[:-1]
            if len(piece) <= LONGEST_PATH:
                yield piece, after


def looks_rooted(text: str) -> bool:
    """Whether `text` has the shape of a drop: after a quote, a rooted path; not too long; printable."""
    if len(text) > LONGEST_DROP:
        return False
    body = _body(text)
    return bool(body) and not _CONTROL.search(body) and is_rooted(body.lstrip("'\""))


def is_rooted(name: str) -> bool:
    """Whether `name` begins like an absolute path: /, ~, a drive letter, a share, or file:."""
    return _ROOTED.match(name) is not None


def parse(text: str) -> tuple[Reading, ...]:
    """Every reading of `text` in which all names are rooted, in the order to try; none for plain text."""
    if not looks_rooted(text):
        return ()
    found: list[Reading] = []
    seen: set[tuple[str, ...]] = set()
    for style, names in _readings(_body(text)):
        decoded = [_path(name) for name in names]
        rooted = tuple(name for name in decoded if name is not None and is_rooted(name))
        if len(rooted) == len(names) and rooted not in seen:
            seen.add(rooted)
            found.append(Reading(style, rooted))
    return tuple(found)


def joined(text: str) -> tuple[Joined, ...]:
    """`text` as unquoted names one after the other, with and without its last space; () for plain text."""
    if not looks_rooted(text):
        return ()
    found: list[Joined] = []
    for body in _endings(_body(text)):
        begins = (separator.end() for separator in _SEPARATOR.finditer(body))
        starts = (0, *(at for at in begins if is_rooted(body[at : at + 8])))
        if len(starts) <= MOST_STARTS:
            found.append(Joined(body, starts))
    return tuple(found)


def _endings(body: str) -> tuple[str, ...]:
    """`body` without the terminal's separator (at most one space), whole, and without any space at the end.

    A name may end in spaces itself.
    """
    return tuple(dict.fromkeys((body.removesuffix(" "), body, _strip(body))))


def _body(text: str) -> str:
    """Without NULs (Rio on Windows puts one between any two characters) and without newlines around it."""
    return text.replace("\0", "").lstrip(" \t\r\n").rstrip("\r\n")


def _strip(body: str) -> str:
    """Without the separators at the end, but with an escaped space, which belongs to the last name."""
    stripped = body.rstrip(" \t\r\n")
    escapes = len(stripped) - len(stripped.rstrip("\\"))
    return stripped + " " if escapes % 2 and len(stripped) < len(body) else stripped


def _readings(body: str) -> Iterator[tuple[Style, list[str]]]:
    text = _strip(body)
    for whole in _endings(body):
        yield Style.RAW, [whole]
    names = quoting.lines(body)
    if names:
        yield Style.LINES, names
        yield Style.LINES, [name.strip(" \t") for name in names]
    for style, split in (
        (Style.POSIX, quoting.posix_words),
        (Style.ESCAPED_SPACES, quoting.escaped_spaces),
        (Style.WINDOWS, quoting.windows_words),
    ):
        names = split(text)
        if names:
            yield style, names


def _path(name: str) -> str | None:
    """A name with a file: URI undone; None for a URI that names nothing here, or a name no disk can hold."""
    if name[:5].lower() == "file:":
        uri = quoting.file_uri(name)
        return None if uri is None or "\0" in uri else uri
    return name if len(name) <= LONGEST_PATH else None
