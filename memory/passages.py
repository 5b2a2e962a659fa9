"""The text of record: sources and passages in SQLite, with the lexical index in the same transactions."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from memory import erase, unread
from memory.filter import Filter, admitted
from memory.keys import Context
from memory.lexical import Lexicon
from memory.passage_rows import COLUMNS, FROM, to_integer, to_passage, to_source
from memory.places import leave
from memory.types import DocumentRow, Passage, PassageId, RecallError, Source, SourceId, SourceKind
from memory.words import tokens

_VERSION = 10
_IN = "IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage on its way in; `parent` is the message before (chats), `heading` the one above
    (documents)."""

    passage: Passage
    parent: str | None = None
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A passage as ranking sees it: where it stands, and the index terms of its text and of its date or heading,
    joined by spaces."""

    id: PassageId
    source: str
    ordinal: int
    time: float
    message: str | None
    role: str | None
    body: str
    context: str


class PassageDb:
    """passages.db. One connection writes under a lock; another reads, and never waits for a writer (WAL)."""

    def __init__(self, file: Path) -> None:
        """Open or create. Raises RecallError when the file is damaged or of a newer version."""
        try:
            self._writer = _connect(file)
            self._migrate(file)
            self._reader = _connect(file)
        except sqlite3.DatabaseError as error:
            raise RecallError(
                f"The memory's file {file} cannot be read ({error}): restore it or move it away."
            ) from error
        self._writing = threading.RLock()
        self._reading = threading.RLock()
        self._words = Lexicon(self._read)
        self._renamed = 0
        self._names: tuple[int, list[tuple[SourceId, str]]] = (-1, [])

    def _migrate(self, file: Path) -> None:
        version = self._writer.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise RecallError(f"{file} was written by a newer aios-chat: update the program.")
        if 0 < version < _VERSION:
            raise RecallError(f"{file} was written by an older aios-chat: move it away, and give its files again.")
        if version == 0:
            schema = files("memory").joinpath("schema.sql").read_text(encoding="utf-8")
            self._writer.executescript(f"BEGIN; {schema} PRAGMA user_version = {_VERSION}; COMMIT;")

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._writing, self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            yield self._writer
        self._words.written()

    @contextmanager
    def _renaming(self) -> Iterator[sqlite3.Connection]:
        """A change of what documents are called."""
        with self._writing:
            with self._write() as db:
                yield db
            self._renamed += 1

    def _read(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        with self._reading:
            return self._reader.execute(sql, parameters).fetchall()

    def rows(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        """The rows of a query, for what reports on the memory (inventory.py)."""
        return self._read(sql, *parameters)

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """A change from outside: all of it or nothing."""
        return self._write()

    # --- writing --------------------------------------------------------------------------------------------

    def put(
        self,
        source: Source,
        added: float,
        new: Sequence[NewPassage],
        format_: str = "",
        pages: int | None = None,
        left: Sequence[int] = (),
    ) -> int:
        """Store a source and its passages in one transaction; known ids are kept as they are. `left` are its pages that
        are still to be read. Returns how many were new."""
        with self._renaming() if source.kind is SourceKind.DOCUMENT else self._write() as db:
            db.execute(
                "INSERT INTO sources(id, kind, title, origin, format, pages, added) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT(id) DO UPDATE SET title = excluded.title WHERE kind = 'chat'",
                (source.id, source.kind, source.title, source.origin, format_, pages, added),
            )
            if source.kind is SourceKind.DOCUMENT:
                db.execute("INSERT OR IGNORE INTO names VALUES (?, ?, ?)", (source.id, source.title, source.origin))
                unread.keep(db, source.id, left)
            return sum(insert(db, item) for item in new)

    def leave(self, origin: str, but: SourceId) -> tuple[SourceId, ...]:
        """Take the place `origin` from every document other than `but`; returns those that are left without one.
        A document that stands at another place goes on under its name there."""
        with self._renaming() as db:
            return leave(db, origin, but)

    def next_ordinal(self, source: SourceId) -> int:
        """The first free running number of a source."""
        rows = self._read("SELECT coalesce(max(ordinal) + 1, 0) FROM passages WHERE source = ?", source)
        return int(str(rows[0][0]))

    def delete(self, ids: Sequence[PassageId]) -> tuple[PassageId, ...]:
        """Remove passages, their index terms, and the digests of their messages; all that went. `scrub` is due then."""
        with self._write() as db:
            gone = erase.delete(db, ids)
        self._words.deleted()
        return gone

    def index_words(self, ids: Sequence[PassageId]) -> None:
        """Make these passages' rows of the lexical index anew."""
        with self._write() as db:
            known = db.execute(f"SELECT number, id, text FROM passages WHERE id {_IN}", (json.dumps(ids),)).fetchall()
            for number, identifier, text in known:
                db.execute("DELETE FROM terms WHERE rowid = ?", (number,))
                row = (number, " ".join(tokens(text)), " ".join(_context_terms(db, identifier)))
                db.execute("INSERT INTO terms(rowid, body, context) VALUES (?, ?, ?)", row)

    def drop_source(self, source: SourceId) -> None:
        """Remove a source's own row and names (its passages are deleted before). `scrub` is due then."""
        with self._renaming() as db:
            erase.drop_source(db, source)

    def is_unscrubbed(self) -> bool:
        """Whether something was deleted, now or before the program died, and not scrubbed yet."""
        return bool(self._read("SELECT 1 FROM unscrubbed"))

    def scrub(self) -> None:
        """Overwrite what was deleted; see `erase.scrub`."""
        with self._writing:
            erase.scrub(self._writer)

    def close(self) -> None:
        """Close both connections."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    # --- reading --------------------------------------------------------------------------------------------

    def ids(self, source: SourceId | None = None, messages: Sequence[str] | None = None) -> list[PassageId]:
        """Ids of all passages, or of a source's, or of single messages' passages, in order."""
        sql, parameters = "SELECT id FROM passages WHERE 1", list[object]()
        if source is not None:
            sql, parameters = sql + " AND source = ?", [*parameters, source]
        if messages is not None:
            sql, parameters = (
                sql + f" AND message {_IN}",
                [*parameters, json.dumps(messages)],
            )
        return [PassageId(str(row[0])) for row in self._read(sql + " ORDER BY number", *parameters)]

    def get(self, ids: Sequence[PassageId]) -> dict[PassageId, Passage]:
        """The passages with these ids; unknown ids are left out."""
        rows = self._read(f"SELECT {COLUMNS} {FROM} WHERE p.id {_IN}", json.dumps(ids))
        return {passage.id: passage for passage in map(to_passage, rows)}

    def first(self, source: SourceId, count: int) -> list[Passage]:
        """The first passages of a source, in order."""
        rows = self._read(f"SELECT {COLUMNS} {FROM} WHERE p.source = ? ORDER BY p.ordinal LIMIT ?", source, count)
        return [to_passage(row) for row in rows]

    def on_page(self, source: SourceId, page: int) -> list[Passage]:
        """The passages of one page, in order."""
        rows = self._read(f"SELECT {COLUMNS} {FROM} WHERE p.source = ? AND p.page = ? ORDER BY p.ordinal", source, page)
        return [to_passage(row) for row in rows]

    def on_page_of_any(self, page: int, documents: Collection[SourceId] | None, limit: int) -> list[Passage]:
        """The first passages on this page of any document, or of these; the documents given first come first."""
        among = "" if documents is None else f" AND +p.source {_IN}"
        rows = self._read(
            f"SELECT {COLUMNS} {FROM} WHERE p.page = ? AND s.kind = '{SourceKind.DOCUMENT}'{among} "
            "ORDER BY s.added, p.ordinal LIMIT ?",
            page,
            *(() if documents is None else (json.dumps(sorted(documents)),)),
            limit,
        )
        return [to_passage(row) for row in rows]

    def of_messages(self, messages: Sequence[str]) -> list[Passage]:
        """The passages of these messages, in the order they were stored."""
        rows = self._read(
            f"SELECT {COLUMNS} {FROM} WHERE p.message {_IN} ORDER BY p.number",
            json.dumps(messages),
        )
        return [to_passage(row) for row in rows]

    def messages(self, ids: Sequence[PassageId]) -> dict[PassageId, str]:
        """The message of each of these passages that has one."""
        rows = self._read(f"SELECT id, message FROM passages WHERE id {_IN}", json.dumps(ids))
        return {PassageId(str(identifier)): str(message) for identifier, message in rows if message is not None}

    def holds_any(self, messages: Sequence[str]) -> bool:
        """Whether one of these messages is stored."""
        return bool(self._read(f"SELECT 1 FROM passages WHERE message {_IN} LIMIT 1", json.dumps(messages)))

    def neighbours(self, passage: Passage) -> list[Passage]:
        """What stands right before and right after: in a chat along the path, in a document by running
        number."""
        rows = self._read(
            f"SELECT {COLUMNS} {FROM} WHERE p.source = ? AND p.ordinal IN (?, ?) AND p.message IS ? "
            f"UNION SELECT {COLUMNS} {FROM} WHERE p.message IS NOT NULL AND (p.parent = ? "
            "OR p.message = (SELECT parent FROM passages WHERE id = ?)) LIMIT 8",
            passage.source.id,
            passage.ordinal - 1,
            passage.ordinal + 1,
            passage.place.message,
            passage.place.message,
            passage.id,
        )
        return [to_passage(row) for row in rows]

    def around(self, ids: Sequence[PassageId], reach: int) -> list[Indexed]:
        """These passages with up to `reach` others of their chat, or one of their document, on either side, ordered by
        source and running number."""
        rows = self._read(
            "SELECT p.id, p.source, p.ordinal, p.time, p.message, p.role, t.body, t.context FROM passages p "
            "JOIN terms t ON t.rowid = p.number WHERE p.number IN (SELECT n.number FROM passages c "
            "JOIN passages n ON n.source = c.source AND n.ordinal BETWEEN c.ordinal - iif(c.message IS NULL, 1, ?1) "
            f"AND c.ordinal + iif(c.message IS NULL, 1, ?1) WHERE c.id {_IN.replace('?', '?2')}) "
            "ORDER BY p.source, p.ordinal",
            reach,
            json.dumps(ids),
        )
        return [Indexed(*row) for row in rows]  # type: ignore[arg-type]  # the columns' types are the fields'

    def keys(self, ids: Sequence[PassageId]) -> list[tuple[PassageId, str]]:
        """What is embedded for each passage: its text with its surroundings (keys.py)."""
        with self._reading:
            contexts = ((identifier, _context(self._reader, identifier)) for identifier in ids)
            return [(identifier, context.key()) for identifier, context in contexts if context is not None]

    def match(self, terms: Sequence[str], limit: int, within: Filter) -> list[PassageId]:
        """The best passages by BM25 over words and bigrams, best first. The context counts 0.3 of the text itself."""
        rows = self._words.match(terms, limit, admitted(within, self._read)).tolist()
        found = self._read(f"SELECT number, id FROM passages WHERE number {_IN}", json.dumps(rows))
        known = {number: PassageId(str(identifier)) for number, identifier in found}
        return [known[row] for row in rows if row in known]

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many passages each term occurs; those that occur in none are left out."""
        return self._words.frequencies(terms)

    def warm(self) -> None:
        """Read now what the first search would wait for: with 200,000 passages a tenth of a second."""
        self._words.warm()

    def count(self) -> int:
        """How many passages there are."""
        return self._words.count()

    def sources(self, kind: SourceKind | None = None) -> list[Source]:
        """Every source, oldest first."""
        rows = self._read(
            "SELECT id, kind, title, origin FROM sources WHERE ? IS NULL OR kind = ? ORDER BY added",
            kind,
            kind,
        )
        return [to_source(*row) for row in rows]

    def source(self, source: SourceId) -> Source | None:
        """One source, or None."""
        rows = self._read("SELECT id, kind, title, origin FROM sources WHERE id = ?", source)
        return to_source(*rows[0]) if rows else None

    def names(self) -> list[tuple[SourceId, str]]:
        """Every name a document was given, oldest document first; read when one was given or taken."""
        renamed, (as_of, known) = self._renamed, self._names
        if as_of != renamed:
            rows = self._read("SELECT n.source, n.name FROM names n JOIN sources s ON s.id = n.source ORDER BY s.added")
            known = [(SourceId(str(source)), str(name)) for source, name in rows]
            self._names = renamed, known
        return known

    def documents(self) -> list[DocumentRow]:
        """Every document, newest first."""
        rows = self._read(
            "SELECT s.id, s.kind, s.title, s.origin, (SELECT json_group_array(origin) FROM names WHERE source = s.id "
            "AND origin <> s.origin), s.format, s.pages, count(p.id), s.added FROM sources s "
            "LEFT JOIN passages p ON p.source = s.id WHERE s.kind = ? GROUP BY s.id ORDER BY s.added DESC",
            SourceKind.DOCUMENT,
        )
        return [
            DocumentRow(to_source(*row[:5]), str(row[5]), to_integer(row[6]), int(str(row[7])), float(str(row[8])))
            for row in rows
        ]


def _connect(file: Path) -> sqlite3.Connection:
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=5.0)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "secure_delete = ON"):
        db.execute(f"PRAGMA {pragma}")
    return db


def insert(db: sqlite3.Connection, item: NewPassage) -> int:
    """Store one passage with its words; 1 when it was new."""
    passage, place = item.passage, item.passage.place
    cursor = db.execute(
        'INSERT OR IGNORE INTO passages(id, source, ordinal, page, line, start, "end", message, parent, role, time, '
        "heading, text, confidence) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            passage.id,
            passage.source.id,
            passage.ordinal,
            place.page,
            place.line,
            place.start,
            place.end,
            place.message,
            item.parent,
            passage.role,
            passage.time,
            item.heading,
            passage.text,
            passage.confidence,
        ),
    )
    if cursor.rowcount:
        words, beside = tokens(passage.text), _context_terms(db, passage.id)
        row = (cursor.lastrowid, " ".join(words), " ".join(beside))
        db.execute("INSERT INTO terms(rowid, body, context) VALUES (?, ?, ?)", row)
        db.execute("INSERT INTO lengths VALUES (?, ?)", (cursor.lastrowid, len(words) + len(beside)))
    return cursor.rowcount


def _context_terms(db: sqlite3.Connection, identifier: str) -> list[str]:
    context = _context(db, identifier)
    return [] if context is None else tokens(context.surroundings())


def _context(db: sqlite3.Connection, identifier: str) -> Context | None:
    row = db.execute(
        "SELECT s.kind, s.title, p.heading, p.time, p.text FROM passages p JOIN sources s ON s.id = p.source "
        "WHERE p.id = ?",
        (identifier,),
    ).fetchone()
    return None if row is None else Context(SourceKind(row[0]), *row[1:])
