"""Words are found as FTS5 ranks them, inside any filter, and reading for it stays bounded."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import filter as filters
from memory import lexical
from memory.filter import Filter
from memory.passages import NewPassage, PassageDb
from memory.types import Passage, PassageId, Place, Source, SourceId, SourceKind

_WORDS = [f"w{number}q" for number in range(400)]
_SOURCES = 6


@pytest.fixture
def db(tmp_path: Path) -> Iterator[PassageDb]:
    opened = PassageDb(tmp_path / "passages.db")
    yield opened
    opened.close()


def fill(db: PassageDb, each: int = 100) -> None:
    """Chats and documents by turns; rare words and common ones."""
    chance = random.Random(7)
    for number in range(_SOURCES):
        chat = number % 2 == 0
        source = Source(
            SourceId(f"s{number}"), SourceKind.CHAT if chat else SourceKind.DOCUMENT, "Name", f"/f/{number}"
        )
        db.put(source, float(number), [_new(source, place, _text(chance), chat) for place in range(each)])


def _text(chance: random.Random) -> str:
    return " ".join(_WORDS[int(len(_WORDS) * chance.random() ** 2)] for _ in range(chance.randint(5, 60)))


def _new(source: Source, place: int, text: str, chat: bool) -> NewPassage:
    message = f"{source.id}-m{place}" if chat else None
    passage = Passage(PassageId(f"{source.id}-{place}"), source, Place(message=message), place, 1.7e9, text, None)
    return NewPassage(passage)


def questions(count: int = 40) -> list[list[str]]:
    chance = random.Random(3)
    return [chance.sample(_WORDS, chance.randint(1, 8)) for _ in range(count)]


def test_what_fts5_ranks_best_is_found(db: PassageDb, tmp_path: Path) -> None:
    fill(db)
    judge = sqlite3.connect(tmp_path / "passages.db")
    shares = []
    for terms in questions():
        rows = judge.execute(
            "SELECT p.id FROM terms JOIN passages p ON p.number = terms.rowid WHERE terms MATCH ? "
            "ORDER BY bm25(terms, 1.0, 0.3) LIMIT 10",
            (" OR ".join(terms),),
        ).fetchall()
        found = db.match(terms, 60, Filter())
        shares.append(len({row[0] for row in rows} & set(found)) / len(rows))
    judge.close()
    assert sum(shares) / len(shares) >= 0.99


@pytest.mark.parametrize("few", [0, 5_000])
@pytest.mark.parametrize(
    "within",
    [
        Filter(kind=SourceKind.DOCUMENT),
        Filter(kind=SourceKind.CHAT, documents=frozenset()),
        Filter(sources=(SourceId("s3"), SourceId("s4"))),
        Filter(documents=frozenset({SourceId("s1")})),
        Filter(kind=SourceKind.DOCUMENT, documents=frozenset({SourceId("s1")})),
        Filter(messages=frozenset(f"s2-m{number}" for number in range(40))),
        Filter(kind=SourceKind.CHAT, messages=frozenset({"s2-m7", "s4-m9", "nowhere"})),
        Filter(sources=()),
    ],
)
def test_a_filter_lets_through_what_it_admits_and_only_that(
    db: PassageDb, within: Filter, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(db)
    monkeypatch.setattr(filters, "_FEW", few)
    every = db.get(db.ids())
    for terms in questions(10):
        holding = {i for i, passage in every.items() if set(terms) & set(passage.text.split())}
        assert set(db.match(terms, len(every), within)) == {i for i in holding if within.admits(every[i])}
        best = db.match(terms, 3, within)
        assert len(best) <= 3
        assert all(within.admits(every[i]) for i in best)


def test_counts_of_common_words_are_exact_where_their_rows_are_cut(
    db: PassageDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(db)
    exact = db.frequencies(_WORDS)
    texts = [set(passage.text.split()) for passage in db.get(db.ids()).values()]
    assert exact == {word: n for word in _WORDS if (n := sum(word in text for text in texts))}
    monkeypatch.setattr(lexical, "_MOST_ROWS", 10)
    db.put(Source(SourceId("one more"), SourceKind.CHAT, "Chat"), 0.0, ())  # what was read is read again
    assert db.frequencies(_WORDS) == exact
    assert len(db.match(_WORDS[:1], 60, Filter())) == 10


def test_what_is_written_is_found_at_once_and_what_is_deleted_never(db: PassageDb) -> None:
    source = Source(SourceId("c"), SourceKind.CHAT, "Chat")
    assert (db.count(), db.match(["heron"], 5, Filter())) == (0, [])
    db.put(source, 0.0, [_new(source, 0, "a heron " + "stood " * 50, True), _new(source, 1, "a grebe", True)])
    assert (db.count(), db.match(["heron", "grebe"], 5, Filter())) == (2, ["c-1", "c-0"])
    db.delete([PassageId("c-1"), PassageId("c-0")])
    assert (db.count(), db.match(["heron", "grebe"], 5, Filter()), db.frequencies(["heron"])) == (0, [], {})
    # The row numbers are given again: what is known of the old rows must not stand for the new ones.
    db.put(source, 0.0, [_new(source, 2, "one heron", True), _new(source, 3, "heron " + "stood " * 50, True)])
    assert db.match(["heron"], 5, Filter()) == ["c-2", "c-3"]
