"""What web searches found: passages like any other, but with a day on which they expire. The memory itself asks no
network."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from memory.passages import NewPassage, PassageDb, insert
from memory.store import Store
from memory.types import Passage, PassageId, Place, Source, SourceId, SourceKind

PREFIX = "web-"
"""How the ids of these sources begin; a document's is a SHA-256, a chat's begins with c."""


@dataclass(frozen=True, slots=True)
class Result:
    """One page that was found: its address, its title and what was shown of it."""

    url: str
    title: str
    text: str


def is_web(source: SourceId) -> bool:
    """Whether a source is a web search's."""
    return source.startswith(PREFIX)


def keep(store: Store, results: Sequence[Result], seconds: float) -> list[SourceId]:
    """Store results for so many seconds, in place of what was found at the same addresses before."""
    now = time.time()
    passages = [_passage(result, now) for result in results]
    wanted = {passage.id for passage in passages}
    known = [i for passage in passages for i in store.passages.ids(passage.source.id) if i not in wanted]
    if known:
        store.forget(known)
    with store.passages.transaction() as db:
        for passage in passages:
            source = passage.source
            db.execute(
                "INSERT INTO sources(id, kind, title, origin, added, expires) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT(id) DO UPDATE SET title = excluded.title, added = excluded.added, "
                "expires = excluded.expires",
                (source.id, source.kind, source.title, source.origin, now, now + seconds),
            )
            insert(db, NewPassage(passage))
    store.index([passage.id for passage in passages])
    return [passage.source.id for passage in passages]


def expired(db: PassageDb, now: float) -> frozenset[SourceId]:
    """Sources whose day is over: they are not searched any more."""
    return frozenset(SourceId(str(i)) for (i,) in db.rows("SELECT id FROM sources WHERE expires <= ?", now))


def purge(store: Store, now: float) -> int:
    """Remove what has expired, its bytes included; how many sources that were."""
    gone = expired(store.passages, now)
    for source in gone:
        store.forget(store.passages.ids(source), source)
    return len(gone)


def _passage(result: Result, now: float) -> Passage:
    identifier = SourceId(PREFIX + hashlib.sha256(result.url.encode("utf-8", "surrogatepass")).hexdigest())
    text = result.text or result.title
    mark = f"{identifier}\0{text}".encode("utf-8", "surrogatepass")
    source = Source(identifier, SourceKind.WEB, result.title or result.url, result.url)
    place = Place(start=0, end=len(text))
    return Passage(PassageId(hashlib.sha256(mark).hexdigest()[:32]), source, place, 0, now, text)
