"""What one recall reads does not grow with the store: no statement walks a table, and so many rows are enough."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.embed import Embedder
from memory.passages import NewPassage
from memory.recall.recall import Recaller
from memory.store import Store
from memory.types import (
    Passage,
    PassageId,
    Place,
    Recall,
    RecallError,
    RecallRequest,
    Source,
    SourceId,
    SourceKind,
)
from memory.vectors import VectorIndex

_WORDS = [f"w{number}q" for number in range(60)]
_SIZE = 40
_INDEXED = re.compile(r"SCAN json_each |SCAN \w+ VIRTUAL TABLE INDEX \d+:\S|SCAN CONSTANT ROW|SCAN \(subquery-\d+\)")
_HERE = tuple(f"s0-{number}" for number in range(_SIZE))
_ASKED = "What did we say about w1q and w7q?"
_REQUESTS = {
    "everything": RecallRequest("Which w1q holds the w7q?", SourceId("s0")),
    "a follow-up": RecallRequest("And what about its w7q?", SourceId("s0"), earlier=("Where is the w3q of w9q?",)),
    "a long path": RecallRequest(_ASKED, SourceId("s0"), visible=frozenset(_HERE[-5:]), path=_HERE),
    "this chat": RecallRequest("What did we say about w1q in this chat?", SourceId("s0"), path=_HERE),
    "a collection": RecallRequest("Which w1q holds the w7q?", SourceId("s0"), documents=frozenset({SourceId("s1")})),
    "a file": RecallRequest("Where is w1q?", SourceId("s0"), attached=(SourceId("s1"),)),
    "documents": RecallRequest("What do my documents say about w1q?", SourceId("s0")),
    "a page": RecallRequest("What stands on page 3 of the documents?", SourceId("s0")),
    "talks": RecallRequest("What have we talked about so far?", SourceId("s0")),
}


class NoEmbedder(Embedder):
    """As where the model cannot be read: search goes by words."""

    @property
    def dimension(self) -> int:
        raise RecallError("There is no embedder here.")


@pytest.fixture
def store(tmp_path: Path, embedder_folder: Path) -> Iterator[Store]:
    opened = Store(tmp_path, NoEmbedder(embedder_folder, threads=1), None)
    assert opened.wait_until_complete(60)
    yield opened
    opened.close()


def fill(store: Store, first: int, end: int) -> None:
    chance = random.Random(first)
    for number in range(first, end):
        chat = number % 2 == 0
        source = Source(
            SourceId(f"s{number}"), SourceKind.CHAT if chat else SourceKind.DOCUMENT, f"Name {number}", "/f"
        )
        store.put(source, float(number), [_new(source, place, chance, chat) for place in range(_SIZE)])


def _new(source: Source, place: int, chance: random.Random, chat: bool) -> NewPassage:
    where = Place(message=f"{source.id}-{place}") if chat else Place(page=place // 4)
    role = ("user", "assistant")[place % 2] if chat else None
    text = f"The {' '.join(chance.choices(_WORDS, k=12))}"
    return NewPassage(Passage(PassageId(f"{source.id}-{place}"), source, where, place, 1.7e9 + place, text, role))


def recall(store: Store, request: RecallRequest) -> Recall:
    return Recaller(store, False).recall(request, lambda text: len(text) // 4 + 1)


@pytest.mark.parametrize("request_", _REQUESTS.values(), ids=_REQUESTS.keys())
def test_no_statement_of_a_recall_walks_a_table(store: Store, request_: RecallRequest) -> None:
    fill(store, 0, 4)
    recall(store, request_)  # the names of files are read when they changed
    said: list[str] = []
    reader = store.passages._reader
    reader.set_trace_callback(said.append)
    result = recall(store, request_)
    reader.set_trace_callback(None)
    assert result.trace is not None or result.hits
    walked = [(statement, step) for statement in set(said) for step in _plan(reader, statement) if _walks(step)]
    assert not walked


def _plan(db: sqlite3.Connection, statement: str) -> list[str]:
    if not statement.lstrip().startswith("SELECT"):
        return []  # what FTS5 asks its own tables, told as a comment
    return [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]


def _walks(step: str) -> bool:
    return step.startswith("SCAN") and not _INDEXED.match(step)


@pytest.mark.parametrize("request_", _REQUESTS.values(), ids=_REQUESTS.keys())
def test_a_store_of_three_times_the_size_gives_no_more_rows_to_read(
    store: Store, request_: RecallRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    monkeypatch.setattr("memory.filter._FEW", 200)  # so many are listed at most
    plain = store.passages._read

    def counted(sql: str, *parameters: object) -> list[tuple[object, ...]]:
        nonlocal read
        rows = plain(sql, *parameters)
        read += len(rows)
        return rows

    monkeypatch.setattr(store.passages, "_read", counted)
    monkeypatch.setattr(store.passages._words, "_read", counted)
    figures = []
    for first, end in ((0, 40), (40, 120)):
        fill(store, first, end)
        recall(store, request_)
        read = 0
        recall(store, request_)
        figures.append(read)
    # A little more, for in a larger store what is found stands less often side by side.
    assert figures[1] < 1.7 * figures[0]


def test_a_large_collection_is_searched_among_the_nearest_and_answers_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    rows = np.random.default_rng(5).standard_normal((600, 16), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    sources = [Source(SourceId(f"s{number}"), SourceKind.DOCUMENT, "t") for number in range(3)]
    passages = [Passage(PassageId(str(n)), sources[n % 3], Place(), n, 0.0, "text") for n in range(600)]
    index = VectorIndex(tmp_path, "one", 16)
    index.upsert(passages, rows)
    chosen = (sources[0].id, sources[2].id)
    compared = index.near_in(rows[3], 10, chosen)
    monkeypatch.setattr("memory.vectors._FEW", 50)
    among = index.near_in(rows[3], 10, chosen)
    index.close()
    assert [near.id for near in among] == [near.id for near in compared]
    assert np.allclose([near.cosine for near in among], [near.cosine for near in compared], atol=0.01)
    assert among[0].id == "3"
