"""Which reading of a pasted text names files that exist. Touches the disk: call it off the event loop."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.drop import parse as parsing
from app.drop.parse import Joined, Reading

MOST_PROBES = 2000
"""Questions to the disk for one paste. A real drop of 100 unquoted names needs a few hundred."""
_SPACES = str.maketrans({"\u202f": " ", "\u00a0": " "})
_BEFORE_NOON = (" AM", " PM", " am", " pm")


class PathKind(StrEnum):
    """What stands at a path."""

    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"
    """A device, a pipe, a socket."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Named:
    """A path that a drop names, as the disk spells it."""

    path: Path
    kind: PathKind


Probe = Callable[[str], PathKind]
"""Tells what stands at an absolute path; never raises."""


def probe(path: str) -> PathKind:
    """What stands at `path` on this machine; MISSING also where no disk can hold it or it may not be seen."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return PathKind.MISSING
    if stat.S_ISREG(mode):
        return PathKind.FILE
    return PathKind.FOLDER if stat.S_ISDIR(mode) else PathKind.OTHER


def classify(text: str, look: Probe = probe) -> tuple[Named, ...]:
    """The files and folders that a pasted text names, in its order; () when it is no drop.

    The first reading of `parse` counts in which every name exists; last, unquoted names joined by spaces.
    """
    search = _Search(look)
    for reading in parsing.parse(text):
        named = search.all_of(reading)
        if named:
            return named
    for candidates in parsing.joined(text):
        named = search.joined(candidates)
        if named:
            return named
    return ()


class _Search:
    """Questions to the disk for one paste: each asked once, and not too many."""

    def __init__(self, look: Probe) -> None:
        self._look = look
        self._known: dict[str, Named | None] = {}
        self._probes = 0

    def all_of(self, reading: Reading) -> tuple[Named, ...]:
        found: list[Named] = []
        for name in reading.names:
            named = self._find(name)
            if named is None:
                return ()
            found.append(named)
        return tuple(found)

    def joined(self, candidates: Joined) -> tuple[Named, ...]:
        """Names of which each takes in the words after it while that exists, without a word left over."""
        ends: dict[int, tuple[Named, int] | None] = {}
        last = len(candidates.starts)
        # From the back, so that each start is settled once.
        for first in range(last - 1, -1, -1):
            ends[first] = None
            for piece, after in candidates.pieces(first):
                if after < last and ends[after] is None:
                    continue
                named = self._find(piece) or self._find(piece.replace("\\ ", " "))
                if named is not None:
                    ends[first] = (named, after)
                    break
        found: list[Named] = []
        at = 0
        while at < last:
            step = ends[at]
            if step is None:
                return ()
            found.append(step[0])
            at = step[1]
        return tuple(found)

    def _find(self, name: str) -> Named | None:
        if name not in self._known:
            self._known[name] = self._ask(name)
        return self._known[name]

    def _ask(self, name: str) -> Named | None:
        for spelling in spellings(name):
            if self._probes >= MOST_PROBES:
                return None
            self._probes += 1
            kind = self._look(spelling)
            if kind is not PathKind.MISSING:
                return Named(Path(spelling), kind)
        return None


def spellings(name: str) -> Iterator[str]:
    """Ways in which the disk may spell a pasted name, each once, the pasted one first.

    A terminal turns a newline in a name into a carriage return; macOS writes U+202F before AM and PM in the
    names of screenshots, and decomposed accents, which the clipboard may change.
    """
    # os.path, not Path: Path.expanduser raises RuntimeError for an unknown ~user.
    path = os.path.expanduser(name)
    if path.startswith("~"):
        return
    spaced = path.translate(_SPACES)
    narrow = spaced
    for mark in _BEFORE_NOON:
        narrow = narrow.replace(mark, "\u202f" + mark[1:])
    seen: set[str] = set()
    newlines = path.replace("\r\n", "\n").replace("\r", "\n")
    for spaces in (path, newlines, spaced, narrow, spaced.replace(" ", "\u00a0")):
        for form in (spaces, unicodedata.normalize("NFC", spaces), unicodedata.normalize("NFD", spaces)):
            if form not in seen:
                seen.add(form)
                yield form
