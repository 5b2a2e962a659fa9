"""Digests: turns that have left the window, summed up in dated passages that point back to them.

Nothing is queued anywhere: what is still to be summed up is what no digest points to, so a program that dies on the way
has lost nothing. A digest is a passage of its chat with the role "digest"; it goes when one of its turns goes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from memory.passages import NewPassage, PassageDb, insert
from memory.store import Store
from memory.summary import Turn, digest, extract, fault, question
from memory.types import Passage, PassageId, Place, Source, SourceId, SourceKind

ROLE = "digest"
EXTRACT = "extract"
"""Who made a digest that no model wrote."""
_ENOUGH = 1600
"""Characters of turns that are summed up together, about 400 tokens: a small model loses its way in more."""
_MOST_TURNS = 12
_AT_ONCE = 400
"""Passages of a chat that are looked at together: a recall may be waiting for the same connection."""
_LEAST = 160
"""Characters of turns below which there is nothing to sum up: such turns are short enough to be read themselves."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Turns of one chat and one day, in order, that no digest sums up yet. `time` is that of the last of them."""

    source: Source
    messages: tuple[str, ...]
    turns: tuple[Turn, ...]
    time: float

    @property
    def question(self) -> str:
        """What a model is asked about them."""
        return question(self.turns)


@dataclass(frozen=True, slots=True)
class Kept:
    """A digest that was stored: its text and who made it, a model or EXTRACT; then `refused` says what was wrong with
    the model's summary ("" when there was none)."""

    text: str
    maker: str
    refused: str


@dataclass(frozen=True, slots=True)
class _Said:
    message: str
    role: str
    text: str
    time: float


def next_segment(db: PassageDb, visible: frozenset[str], now: float) -> Segment | None:
    """What to sum up next, of the chat that began last; None when there is nothing. Turns among `visible`, and those
    after the newest of them, are still in a window; today's last turns wait until there are enough of them."""
    for source in reversed(db.sources(SourceKind.CHAT)):
        segment = _of_chat(db, source, visible, _day(now))
        if segment is not None:
            return segment
    return None


def segment_of(db: PassageDb, source: SourceId, messages: Sequence[str]) -> Segment | None:
    """The segment of these messages; None when one of them is not there any more, or is summed up already."""
    chat = db.source(source)
    said = _whole(db, messages)
    digested = db.rows("SELECT 1 FROM digested WHERE message IN (SELECT value FROM json_each(?))", json.dumps(messages))
    if chat is None or not said or len(said) < len(messages) or digested:
        return None
    return _segment(chat, said)


def keep(store: Store, source: SourceId, messages: Sequence[str], summary: str, maker: str) -> Kept | None:
    """Store the digest of these messages: `summary`, which `maker` wrote, if it can be believed, else an extract ("":
    none was written). None, and nothing is stored, when one of them was forgotten or summed up meanwhile."""
    segment = segment_of(store.passages, source, messages)
    if segment is None:
        return None
    refused = fault(summary, segment.turns) if summary else ""
    believed = bool(summary) and not refused
    text = digest(summary, segment.turns) if believed else extract(segment.turns)
    kept = Kept(text, maker if believed else EXTRACT, refused)
    passage = _passage(store.passages, segment, text, kept.maker)
    if not _put(store.passages, passage):
        return None
    store.index([passage.id])
    return kept


def between(db: PassageDb, first: float, end: float, most: int) -> list[Passage]:
    """The digests of turns said in [first, end), at most so many, newest first."""
    rows = db.rows(
        f"SELECT id FROM passages WHERE role = '{ROLE}' AND time >= ? AND time < ? ORDER BY time DESC LIMIT ?",
        first,
        end,
        most,
    )
    found = db.get([PassageId(str(identifier)) for (identifier,) in rows]).values()
    return sorted(found, key=lambda passage: -passage.time)


def makers(db: PassageDb) -> list[tuple[str, int]]:
    """Who wrote digests, and how many each; who wrote most comes first."""
    rows = db.rows("SELECT maker, count(*) FROM digests GROUP BY maker ORDER BY 2 DESC, 1")
    return [(str(maker), int(str(count))) for maker, count in rows]


def _of_chat(db: PassageDb, source: Source, visible: frozenset[str], today: str) -> Segment | None:
    for day, group in groupby(_left(db, source.id, visible), lambda said: _day(said.time)):
        whole = list(group)
        while whole:
            part = _fitting(whole)
            whole = whole[len(part) :]
            full = whole or _length(part) >= _ENOUGH or len(part) >= _MOST_TURNS
            if (full or day != today) and _length(part) >= _LEAST:
                return _segment(source, part)
    return None


def _fitting(turns: Sequence[_Said]) -> list[_Said]:
    """As many of the first turns as are summed up together; they end with an answer where they can."""
    part: list[_Said] = []
    for said in turns:
        if said.role == "user" and (_length(part) >= _ENOUGH or len(part) >= _MOST_TURNS):
            break
        part.append(said)
    return part


def _length(part: Sequence[_Said]) -> int:
    return sum(len(said.text) for said in part)


def _segment(source: Source, part: Sequence[_Said]) -> Segment:
    turns = tuple(Turn(said.role, said.text) for said in part)
    return Segment(source, tuple(said.message for said in part), turns, part[-1].time)


def _left(db: PassageDb, source: SourceId, visible: frozenset[str]) -> Iterator[_Said]:
    """The chat's messages that have left the window and have no digest, oldest first, some read at a time: those that
    were said before the newest visible one and are not visible themselves. A pinned one hides none that follow it."""
    (newest,) = db.rows(
        "SELECT max(ordinal) FROM passages WHERE source = ? AND message IN (SELECT value FROM json_each(?))",
        source,
        json.dumps(sorted(visible)),
    )
    known = set(visible)
    after: object = -1
    while rows := db.rows(
        "SELECT ordinal, message FROM passages p WHERE source = ?1 AND message IS NOT NULL AND ordinal > ?2 "
        "AND (?3 IS NULL OR ordinal < ?3) AND NOT EXISTS (SELECT 1 FROM digested d WHERE d.message = p.message) "
        "ORDER BY ordinal LIMIT ?4",
        source,
        after,
        newest[0],
        _AT_ONCE,
    ):
        after = rows[-1][0]
        messages = [message for message in dict.fromkeys(str(row[1]) for row in rows) if message not in known]
        known.update(messages)
        yield from _whole(db, messages)


def _whole(db: PassageDb, messages: Sequence[str]) -> list[_Said]:
    """These messages in this order, each put together from all its passages; those that are gone are left out."""
    found: dict[str, _Said] = {}
    for passage in db.of_messages(messages):
        message = str(passage.place.message)
        before = found.get(message)
        text = passage.text if before is None else f"{before.text}\n{passage.text}"
        found[message] = _Said(message, str(passage.role), text, passage.time)
    return [found[message] for message in messages if message in found]


def _put(db: PassageDb, passage: Passage) -> bool:
    """Store a digest with its back-pointers, unless one of its turns was forgotten since it was read."""
    turns = json.dumps(passage.turns)
    with db.transaction() as connection:
        (there,) = connection.execute(
            "SELECT count(DISTINCT message) FROM passages WHERE message IN (SELECT value FROM json_each(?))", (turns,)
        ).fetchone()
        (done,) = connection.execute(
            "SELECT count(*) FROM digested WHERE message IN (SELECT value FROM json_each(?))", (turns,)
        ).fetchone()
        if done or there < len(passage.turns):
            return False
        insert(connection, NewPassage(passage))
        connection.execute("INSERT INTO digests(passage, maker) VALUES (?, ?)", (passage.id, passage.maker))
        connection.executemany(
            "INSERT INTO digested(message, passage, place) VALUES (?, ?, ?)",
            [(message, passage.id, place) for place, message in enumerate(passage.turns)],
        )
    return True


def _passage(db: PassageDb, segment: Segment, text: str, maker: str) -> Passage:
    mark = "\0".join((segment.source.id, ROLE, *segment.messages, text))
    identifier = PassageId(hashlib.sha256(mark.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    place = Place(start=0, end=len(text))
    ordinal = db.next_ordinal(segment.source.id)
    return Passage(identifier, segment.source, place, ordinal, segment.time, text, ROLE, None, segment.messages, maker)


def _day(when: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(when))
