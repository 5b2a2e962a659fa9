"""Chroma as a cache of vectors: ids and vectors, never a text. Everything in it can be made again.

One collection for each kind of source, for a `where` on 20,000 vectors costs Chroma 1.5.9 130 ms and a query without
one 2 ms. Single vectors are read from a flat table beside it: 1,000 of them take Chroma 146 ms.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory.embed import Vectors
from memory.seal import Seal
from memory.types import Passage, PassageId, RecallError, SourceId, SourceKind
from memory.vector_table import VectorTable

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_RULE = "3"
"""Raise it when keys.py or chunking.py change what is embedded: every vector is then made again."""
_SAMPLE = 16
"""Vectors that are looked at in each of three places, to see whether the index is sound."""
_SAME_DISTANCE = 0.01
_FOUND = 0.8
"""Share of those vectors that must be found. HNSW misses some of a large index: 2 of 16 in the middle of 100,000
random ones, none of 80 others. One whose segment is lost, or scribbled over, finds next to none."""
_FEW = 5_000
"""Passages of chosen sources up to which each is compared."""
_EXAMINED = (4, 40)
"""Of more: how many of all passages are looked at for each one wanted, at first, and where few of those were inside."""
_logger = logging.getLogger(__name__)
_BATCH = 2000
"""Below Chroma's limit of 5,461 records for one call."""


@dataclass(frozen=True, slots=True)
class Near:
    """One passage found by meaning; `cosine` is -1..1."""

    id: PassageId
    cosine: float


class VectorIndex:
    """Chroma collections and a flat table in a folder that this process owns."""

    def __init__(self, folder: Path, embedder_id: str, dimension: int) -> None:
        """Open or create; vectors of another embedder are dropped. Raises RecallError when Chroma cannot
        open."""
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        logging.getLogger("chromadb").setLevel(logging.ERROR)
        import chromadb
        from chromadb.config import Settings

        self._seal = Seal(folder)
        self._mark = {"embedder": embedder_id, "dimension": dimension, "rule": _RULE}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._client: ClientAPI = chromadb.PersistentClient(
                str(folder), settings=Settings(anonymized_telemetry=False)
            )
            self._collections = {kind: self._open(kind) for kind in SourceKind}
            self._table = VectorTable(folder / "flat.db", f"{embedder_id} {dimension} {_RULE}")
        except Exception as error:  # Chroma wraps what its Rust core raises in types of its own
            raise RecallError(
                f"Chroma cannot open {folder} ({error}): move that folder away, it is made again."
            ) from error

    @classmethod
    def open_sound(cls, folder: Path, embedder_id: str, dimension: int) -> VectorIndex:
        """Open the index; one that cannot be opened, or does not answer as it should, is thrown away and begun anew.

        Raises RecallError when even an empty one cannot be made.
        """
        seal = Seal(folder)
        broken = seal.is_broken()
        seal.begin()
        index: VectorIndex | None = None
        try:
            if not broken:
                index = cls(folder, embedder_id, dimension)
                if index.is_sound():
                    return index
        except Exception:  # any failure of a derived index has the same remedy
            _logger.warning("the index of meaning cannot be read", exc_info=True)
        finally:
            seal.opened()
        _logger.warning("the index of meaning is damaged and is made anew")
        if index is not None:
            index.close()
        from chromadb.api.shared_system_client import SharedSystemClient

        SharedSystemClient.clear_system_cache()  # else Chroma takes up the broken one again
        shutil.rmtree(folder, ignore_errors=True)
        return cls(folder, embedder_id, dimension)

    def _open(self, kind: SourceKind) -> Collection:
        collection = self._client.get_or_create_collection(
            _name(kind), embedding_function=None, metadata=self._mark, configuration={"hnsw": {"space": "cosine"}}
        )
        stored = dict(collection.metadata or {})
        same = all(stored.get(key) == value for key, value in self._mark.items())
        return collection if same else self._make_anew(kind)

    def _make_anew(self, kind: SourceKind) -> Collection:
        self._client.delete_collection(_name(kind))
        return self._client.create_collection(
            _name(kind), embedding_function=None, metadata=self._mark, configuration={"hnsw": {"space": "cosine"}}
        )

    def is_sound(self) -> bool:
        """Whether the index still holds what was put into it: vectors from its start, its middle and its end have their
        length, and are found when they are looked for.

        With its segment folder lost Chroma 1.5.9 still counts every record but finds one of five, and over a scribbled
        file it answers with whatever stands there: no error, hence the questions.
        """
        return all(_is_sound(collection) for collection in self._collections.values())

    def count(self) -> int:
        """How many vectors there are."""
        return sum(int(collection.count()) for collection in self._collections.values())

    def ids(self) -> set[PassageId]:
        """Every id that has its vector in both places."""
        indexed = (collection.get(include=[])["ids"] for collection in self._collections.values())
        return {PassageId(identifier) for part in indexed for identifier in part} & self._table.ids()

    def known(self, ids: Sequence[PassageId]) -> set[PassageId]:
        """Which of these ids have their vector in both places."""
        indexed = (collection.get(ids=list(ids), include=[])["ids"] for collection in self._collections.values())
        return {PassageId(identifier) for part in indexed for identifier in part} & self._table.rows(ids).keys()

    def upsert(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        """Store or replace vectors, [n, dimension]."""
        for kind, collection in self._collections.items():
            chosen = [number for number, passage in enumerate(passages) if passage.source.kind is kind]
            if chosen:
                collection.upsert(ids=[passages[number].id for number in chosen], embeddings=vectors[chosen])
        self._table.upsert(passages, vectors)

    def delete(self, ids: Sequence[PassageId]) -> None:
        """Remove vectors; unknown ids are no error."""
        for first in range(0, len(ids), _BATCH):
            for collection in self._collections.values():
                collection.delete(ids=list(ids[first : first + _BATCH]))
        self._table.delete(ids)

    def near(self, vector: Vectors, limit: int, kind: SourceKind | None) -> list[Near]:
        """The nearest passages of all or of one kind, best first."""
        kinds = SourceKind if kind is None else (kind,)
        found = [near for chosen in kinds for near in self._near(self._collections[chosen], vector, limit)]
        return sorted(found, key=lambda near: -near.cosine)[:limit]

    def _near(self, collection: Collection, vector: Vectors, limit: int) -> list[Near]:
        found = collection.query(query_embeddings=vector[None, :], n_results=limit, include=["distances"])
        distances = (found["distances"] or [[]])[0]
        pairs = zip(found["ids"][0], distances, strict=True)
        return [Near(PassageId(identifier), 1.0 - float(distance)) for identifier, distance in pairs]

    def near_in(self, vector: Vectors, limit: int, sources: Sequence[SourceId]) -> list[Near]:
        """The nearest passages of these sources, best first: compared one by one, or where they are many, those among
        the nearest of all."""
        compared = self._table.nearest_of_few(vector, limit, sources, _FEW)
        if compared is not None:
            return [Near(*pair) for pair in compared]
        near: list[Near] = []
        for examined in _EXAMINED:
            every = self.near(vector, examined * limit, None)
            inside = self._table.inside([one.id for one in every], sources)
            near = [one for one in every if one.id in inside]
            if len(near) >= limit or len(every) < examined * limit:
                break
        return near[:limit]

    def near_among(self, vector: Vectors, limit: int, ids: Sequence[PassageId]) -> list[Near]:
        """The nearest of these passages, best first."""
        return [Near(*pair) for pair in self._table.nearest(vector, limit, ids)]

    def rows(self, ids: Sequence[PassageId]) -> dict[PassageId, Vectors]:
        """The vectors of given passages; ids without one are left out."""
        return self._table.rows(ids)

    def close(self) -> None:
        """Let the files go."""
        self._table.close()
        self._client.close()  # type: ignore[attr-defined]  # declared on the concrete client only
        self._seal.close()


def _name(kind: SourceKind) -> str:
    return f"passages-{kind.value}"


def _is_sound(collection: Collection) -> bool:
    count = collection.count()
    if count == 0:
        return True
    for offset in {0, max(0, count // 2 - _SAMPLE), max(0, count - _SAMPLE)}:
        held = collection.get(limit=_SAMPLE, offset=offset, include=["embeddings"])
        vectors = np.asarray(held["embeddings"], dtype=np.float32)
        if not len(vectors) or not np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=0.01):
            return False
        wanted = min(count, 10)
        found = collection.query(query_embeddings=vectors, n_results=wanted, include=["distances"])
        if any(len(ids) < wanted for ids in found["ids"]):
            return False
        same = [row[0] <= _SAME_DISTANCE for row in found["distances"] or []]
        if sum(same) < _FOUND * len(vectors):
            return False
    return True
