"""The vectors' files: what is asked of them, and what happens when one of them is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memory.types import Passage, PassageId, Place, Source, SourceId, SourceKind
from memory.vectors import VectorIndex


def passage(name: str, kind: SourceKind) -> Passage:
    return Passage(PassageId(name), Source(SourceId(f"{kind}-1"), kind, "t"), Place(), 0, 0.0, "text")


PASSAGES = [passage("a", SourceKind.CHAT), passage("b", SourceKind.CHAT), passage("c", SourceKind.DOCUMENT)]
ROWS = np.eye(4, dtype=np.float32)[:3]


def filled(folder: Path, embedder: str = "one") -> VectorIndex:
    index = VectorIndex(folder, embedder, 4)
    index.upsert(PASSAGES, ROWS)
    return index


def test_kinds_sources_and_single_passages(tmp_path: Path) -> None:
    index = filled(tmp_path)
    assert index.near(ROWS[2], 5, None)[0].id == "c"
    assert {near.id for near in index.near(ROWS[2], 5, SourceKind.CHAT)} == {"a", "b"}
    assert [near.id for near in index.near_in(ROWS[1], 1, [SourceId("chat-1")])] == ["b"]
    assert [near.id for near in index.near_among(ROWS[0], 5, [PassageId("c"), PassageId("a")])] == ["a", "c"]
    assert index.near_in(ROWS[1], 5, []) == []
    assert np.array_equal(index.rows([PassageId("b"), PassageId("nowhere")])[PassageId("b")], ROWS[1])
    index.delete([PassageId("a"), PassageId("nowhere")])
    assert index.ids() == {"b", "c"}
    assert index.count() == 2
    index.close()


def test_vectors_of_another_embedder_are_dropped(tmp_path: Path) -> None:
    filled(tmp_path).close()
    index = VectorIndex(tmp_path, "another", 4)
    assert index.ids() == set()
    assert index.rows([PassageId("a")]) == {}
    index.close()


@pytest.mark.parametrize("damage", [b"", b"not a database at all" * 400])
def test_a_damaged_table_is_made_anew_and_its_vectors_are_missed(tmp_path: Path, damage: bytes) -> None:
    filled(tmp_path).close()
    for file in tmp_path.glob("flat.db*"):
        file.unlink()
    (tmp_path / "flat.db").write_bytes(damage)
    index = VectorIndex(tmp_path, "one", 4)
    assert index.ids() == set()
    index.upsert(PASSAGES, ROWS)
    assert index.ids() == {"a", "b", "c"}
    index.close()
