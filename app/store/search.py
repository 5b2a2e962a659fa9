"""Words in every message (FTS5): unicode61 for whole words, trigrams for CJK and for parts of words."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from app.store import rows
from app.store.types import Message

SNIPPET_TOKENS = 24
SNIPPET_SIDE = 60
"""Characters left and right of the first hit where SQLite makes no snippet."""
SHORTEST_TRIGRAM = 3
# Two characters that Unicode keeps free of any meaning: no text holds them.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A message found. `marks` are (start, end) of the found words in `snippet`, which is plain text."""

    message: Message
    snippet: str
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Terms:
    words: tuple[str, ...]
    pieces: tuple[str, ...]
    """Found by trigram."""
    scraps: tuple[str, ...]
    """Too short for a trigram: found by reading every message."""


def search(connection: sqlite3.Connection, query: str, limit: int) -> list[MessageHit]:
    """Messages that hold every word of `query` (the last as a beginning), best first.

    A word with a sign at its edge ("C++", "100%") is looked for as it stands. Where no message holds them all, the
    signs are left out; and then words are looked for inside words.
    """
    terms = [term for term in rows.clean(query).replace("\0", " ").split() if term]
    if not terms or limit <= 0:
        return []
    bare = [term for term in (_EDGES.sub("", term) for term in terms) if term]
    for attempt in (_sort_out(terms, _is_word), _sort_out(bare, _is_word), _sort_out(bare, _never)):
        hits = _run(connection, attempt, limit) if any((attempt.words, attempt.pieces, attempt.scraps)) else []
        if hits:
            return hits
    return []


def _is_word(term: str) -> bool:
    """Whether unicode61 finds this term: no CJK, and no sign at its edge that it would drop."""
    return term[0].isalnum() and term[-1].isalnum() and not _CJK.search(term)


def _never(_: str) -> bool:
    return False


def _sort_out(terms: list[str], is_word: Callable[[str], bool]) -> _Terms:
    words = [term for term in terms if is_word(term)]
    others = [term for term in terms if not is_word(term)]
    return _Terms(
        words=tuple(words),
        pieces=tuple(term for term in others if len(term) >= SHORTEST_TRIGRAM),
        scraps=tuple(term for term in others if len(term) < SHORTEST_TRIGRAM),
    )


def _run(connection: sqlite3.Connection, terms: _Terms, limit: int) -> list[MessageHit]:
    word_query = " ".join(map(_quoted, terms.words)) + (" *" if terms.words else "")
    piece_query = " ".join(map(_quoted, terms.pieces))
    conditions, values = [], []
    if word_query and piece_query:
        conditions.append("m.seq IN (SELECT rowid FROM message_trigrams WHERE message_trigrams MATCH ?)")
        values.append(piece_query)
    for scrap in terms.scraps:
        conditions.append(r"m.text LIKE ? ESCAPE '\'")
        values.append("%" + re.sub(r"([\\%_])", r"\\\1", scrap) + "%")
    index = "message_words" if word_query else "message_trigrams" if piece_query else None
    if index is None:
        found = connection.execute(
            f"SELECT {rows.MESSAGE_COLUMNS}, '' FROM {rows.MESSAGE_TABLES} WHERE {' AND '.join(conditions)}"
            " ORDER BY m.seq DESC LIMIT ?",
            (*values, limit),
        ).fetchall()
    else:
        where = " AND ".join([f"{index} MATCH ?", *conditions])
        found = connection.execute(
            f"SELECT {rows.MESSAGE_COLUMNS},"
            f" snippet({index}, 0, '{_OPEN}', '{_CLOSE}', '…', {SNIPPET_TOKENS}) FROM {index}"
            f" JOIN messages AS m ON m.seq = {index}.rowid LEFT JOIN journal AS j ON j.message = m.id"
            f" WHERE {where} ORDER BY {index}.rank, m.seq DESC LIMIT ?",
            (word_query or piece_query, *values, limit),
        ).fetchall()
    messages = rows.to_messages(connection, [row[:-1] for row in found])
    return [
        _hit(message, row[-1] or _cut(message.text, terms.scraps)) for message, row in zip(messages, found, strict=True)
    ]


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _cut(text: str, scraps: tuple[str, ...]) -> str:
    """A snippet around the first scrap, marked as SQLite marks its own."""
    folded = text.lower()
    for scrap in scraps:
        at = folded.find(scrap.lower())
        # A letter whose small form is longer (İ) shifts the places: then the beginning will do.
        if at >= 0 and len(folded) == len(text):
            start, end = max(0, at - SNIPPET_SIDE), at + len(scrap)
            head = "…" if start else ""
            tail = "…" if end + SNIPPET_SIDE < len(text) else ""
            marked = text[start:at] + _OPEN + text[at:end] + _CLOSE + text[end : end + SNIPPET_SIDE]
            return head + marked + tail
    return text[: 2 * SNIPPET_SIDE]


def _hit(message: Message, marked: str) -> MessageHit:
    snippet = ""
    marks: list[tuple[int, int]] = []
    for piece in re.split(f"([{_OPEN}{_CLOSE}])", marked):
        if piece == _OPEN:
            marks.append((len(snippet), len(snippet)))
        elif piece == _CLOSE and marks:
            marks[-1] = (marks[-1][0], len(snippet))
        elif piece not in (_OPEN, _CLOSE):
            snippet += piece
    return MessageHit(message, snippet, tuple(marks))
