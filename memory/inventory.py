"""What the memory holds: its sources, its passages one after the other, its bytes; and its indexes made anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from memory.passages import PassageDb
from memory.store import Store
from memory.types import Passage, PassageId, RecallError, Source, SourceId, SourceKind

_BATCH = 256
"""Passages read, or indexed anew, at a time."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source as listed to people. `added` and `newest` are Unix seconds: when it came, and the time of its newest
    passage (None when it has none). `format` and `pages` are those of documents."""

    source: Source
    format: str
    pages: int | None
    passages: int
    added: float
    newest: float | None


@dataclass(frozen=True, slots=True)
class Size:
    """How many bytes a part of the memory takes on disk."""

    part: str
    bytes: int


def sources(db: PassageDb) -> list[SourceRow]:
    """Every source, the one that was added last first."""
    rows = db.rows(
        "SELECT s.id, s.kind, s.title, s.origin, s.format, s.pages, count(p.id), s.added, max(p.time) "
        "FROM sources s LEFT JOIN passages p ON p.source = s.id GROUP BY s.id ORDER BY s.added DESC, s.id"
    )
    return [
        SourceRow(
            Source(SourceId(str(identifier)), SourceKind(str(kind)), str(title), str(origin)),
            str(format_),
            None if pages is None else int(str(pages)),
            int(str(count)),
            float(str(added)),
            None if newest is None else float(str(newest)),
        )
        for identifier, kind, title, origin, format_, pages, count, added, newest in rows
    ]


def passages(db: PassageDb) -> Iterator[list[Passage]]:
    """Every passage, source by source in their order, some at a time. One that is forgotten meanwhile is left out."""
    ids = [
        PassageId(str(identifier))
        for (identifier,) in db.rows(
            "SELECT p.id FROM passages p JOIN sources s ON s.id = p.source ORDER BY s.added, s.id, p.ordinal, p.number"
        )
    ]
    for first in range(0, len(ids), _BATCH):
        part = ids[first : first + _BATCH]
        found = db.get(part)
        yield [found[identifier] for identifier in part if identifier in found]


def sizes(folder: Path) -> list[Size]:
    """What the memory's folder takes on disk: the text with its lexical index, and the vectors."""
    text = [file for file in folder.glob("passages.db*") if file.is_file()]
    vectors = [file for part in ("vectors", "pictures") for file in (folder / part).rglob("*") if file.is_file()]
    return [
        Size("text and words", sum(file.stat().st_size for file in text)),
        Size("vectors", sum(file.stat().st_size for file in vectors)),
    ]


def rebuild(store: Store, on_done: Callable[[int, int], None]) -> int:
    """Make both indexes anew from the text of record; `on_done` hears (passages done, of how many). Returns how many
    there are. Searches go on meanwhile, by words where the vectors are not there yet; when it is broken off, the next
    `open` goes on.

    Raises RecallError when there is no embedder, or the vectors cannot be written.
    """
    if not store.wait_for_vectors():
        raise RecallError(store.problem or "The embedder is not loaded yet: try again in a minute.")
    store.wait_until_complete()
    ids = store.passages.ids()
    for first in range(0, len(ids), _BATCH):
        store.passages.index_words(ids[first : first + _BATCH])
    store.drop_vectors()
    for first in range(0, len(ids), _BATCH):
        on_done(first, len(ids))
        store.index(ids[first : first + _BATCH])
    on_done(len(ids), len(ids))
    return len(ids)
