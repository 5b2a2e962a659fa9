"""The ways in which terminals write several file names into one text, each undone by one pure function.

A function returns the names, or None where the text is not written that way.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

_DOUBLE_QUOTED_ESCAPES = '"\\$`'
_WINDOWS_NAME = re.compile(r'"([^"]*)"|(\S+)')


def lines(text: str) -> list[str] | None:
    """One name a line, as it is (kitty, Ghostty on GTK)."""
    return [line for line in re.split(r"\r\n|\r|\n", text) if line.strip()] or None


def posix_words(text: str) -> list[str] | None:
    r"""Words as a POSIX shell reads them: '...', "..." and \x. None when a quote is left open.

    Not `shlex`: inside double quotes that keeps the backslash of \$ and \`, which iTerm2 writes.
    """
    words: list[str] = []
    word: str | None = None
    at = 0
    while at < len(text):
        character = text[at]
        if character in " \t\r\n":
            if word is not None:
                words.append(word)
                word = None
            at += 1
            continue
        word = word or ""
        if character == "'":
            end = text.find("'", at + 1)
            if end < 0:
                return None
            word, at = word + text[at + 1 : end], end + 1
        elif character == '"':
            inside = _double_quoted(text, at + 1)
            if inside is None:
                return None
            word, at = word + inside[0], inside[1]
        elif character == "\\":
            if at + 1 == len(text):
                return None
            word, at = word + text[at + 1], at + 2
        else:
            word, at = word + character, at + 1
    return words if word is None else [*words, word]


def _double_quoted(text: str, at: int) -> tuple[str, int] | None:
    """What stands between double quotes, from `at` on, and where to go on; None when no quote closes it."""
    parts: list[str] = []
    while at < len(text):
        character = text[at]
        if character == '"':
            return "".join(parts), at + 1
        if character == "\\" and text[at + 1 : at + 2] in _DOUBLE_QUOTED_ESCAPES and at + 1 < len(text):
            parts.append(text[at + 1])
            at += 2
            continue
        parts.append(character)
        at += 1
    return None


def escaped_spaces(text: str) -> list[str] | None:
    r"""Names split at spaces, where only a space is escaped and any other backslash is itself (WezTerm)."""
    names = [piece.replace("\\ ", " ") for piece in re.split(r"(?<!\\) ", text)]
    return [name for name in names if name] or None


def windows_words(text: str) -> list[str] | None:
    """Names in double quotes or without spaces, nothing escaped (Windows Terminal, WezTerm on Windows)."""
    names = []
    at = 0
    for found in _WINDOWS_NAME.finditer(text):
        if text[at : found.start()].strip():
            return None
        names.append(found[1] if found[1] is not None else found[2])
        at = found.end()
    if any('"' in name for name in names):
        return None
    return [name for name in names if name] or None


def file_uri(word: str) -> str | None:
    """The path of a file: URI on this machine; None for any other word, and for another machine's file."""
    if word[:5].lower() != "file:":
        return None
    try:
        parts = urlsplit(word.replace("#", "%23").replace("?", "%3F"))
    except ValueError:
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        return None
    path = unquote(parts.path, errors="surrogateescape")
    # file:///C:/x is the Windows path C:/x.
    return path[1:] if re.match(r"/[A-Za-z]:/", path) else path
