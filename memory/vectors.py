"""Chroma as a cache of vectors: ids, vectors and source ids; never a text. Everything in it can be made
again."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memory.embed import Vectors
from memory.seal import Seal
from memory.types import Passage, PassageId, RecallError, SourceId

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_NAME = "passages"
_RULE = "1"
"""Raise it when keys.py or chunking.py change what is embedded: every vector is then made again."""
_SAMPLE = 16
"""Vectors that are looked at in each of three places, to see whether the index is sound."""
_SAME_DISTANCE = 0.01
_logger = logging.getLogger(__name__)
_BATCH = 2000
"""Below Chroma's limit of 5,461 records for one call."""


@dataclass(frozen=True, slots=True)
class Near:
    """One passage found by meaning; `cosine` is -1..1."""

    id: PassageId
    cosine: float


class VectorIndex:
    """One Chroma collection in a folder that this process owns."""

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
            self._collection = self._open()
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

    def _open(self) -> Collection:
        collection = self._client.get_or_create_collection(
            _NAME, embedding_function=None, metadata=self._mark, configuration={"hnsw": {"space": "cosine"}}
        )
        stored = dict(collection.metadata or {})
        return collection if all(stored.get(key) == value for key, value in self._mark.items()) else self._make_anew()

    def _make_anew(self) -> Collection:
        self._client.delete_collection(_NAME)
        return self._client.create_collection(
            _NAME, embedding_function=None, metadata=self._mark, configuration={"hnsw": {"space": "cosine"}}
        )

    def is_sound(self) -> bool:
        """Whether the index still holds what was put into it: vectors from its start, its middle and its end have their
        length, and are found when they are looked for.

        With its segment folder lost Chroma 1.5.9 still counts every record but finds one of five, and over a scribbled
        file it answers with whatever stands there: no error, hence the questions.
        """
        count = self.count()
        if count == 0:
            return True
        for offset in {0, max(0, count // 2 - _SAMPLE), max(0, count - _SAMPLE)}:
            held = self._collection.get(limit=_SAMPLE, offset=offset, include=["embeddings"])
            vectors = np.asarray(held["embeddings"], dtype=np.float32)
            if not len(vectors) or not np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=0.01):
                return False
            wanted = min(count, 10)
            found = self._collection.query(query_embeddings=vectors, n_results=wanted, include=["distances"])
            if any(len(ids) < wanted for ids in found["ids"]):
                return False
            if any(row[0] > _SAME_DISTANCE for row in found["distances"] or []):
                return False
        return True

    def count(self) -> int:
        """How many vectors there are."""
        return int(self._collection.count())

    def ids(self) -> set[PassageId]:
        """Every id that has a vector."""
        return {PassageId(identifier) for identifier in self._collection.get(include=[])["ids"]}

    def known(self, ids: Sequence[PassageId]) -> set[PassageId]:
        """Which of these ids have a vector."""
        return {PassageId(identifier) for identifier in self._collection.get(ids=list(ids), include=[])["ids"]}

    def upsert(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        """Store or replace vectors, [n, dimension]."""
        if passages:
            self._collection.upsert(
                ids=[passage.id for passage in passages],
                embeddings=vectors,
                metadatas=[{"source": passage.source.id, "kind": passage.source.kind.value} for passage in passages],
            )

    def delete(self, ids: Sequence[PassageId]) -> None:
        """Remove vectors; unknown ids are no error."""
        for first in range(0, len(ids), _BATCH):
            self._collection.delete(ids=list(ids[first : first + _BATCH]))

    def near(self, vector: Vectors, limit: int, sources: Sequence[SourceId] | None, kind: str | None) -> list[Near]:
        """The nearest passages, best first."""
        where: dict[str, Any] | None = None
        if sources is not None:
            where = {"source": {"$in": list(sources)}}
        elif kind is not None:
            where = {"kind": kind}
        count = self._collection.count()
        if count == 0 or (sources is not None and not sources):
            return []
        found = self._collection.query(
            query_embeddings=vector[None, :], n_results=min(limit, count), where=where, include=["distances"]
        )
        distances = (found["distances"] or [[]])[0]
        pairs = zip(found["ids"][0], distances, strict=True)
        return [Near(PassageId(identifier), 1.0 - float(distance)) for identifier, distance in pairs]

    def cosines(self, vector: Vectors, ids: Sequence[PassageId]) -> dict[PassageId, float]:
        """The exact similarity of given passages; ids without a vector are left out."""
        if not ids:
            return {}
        found = self._collection.get(ids=list(ids), include=["embeddings"])
        stored = np.asarray(found["embeddings"], dtype=np.float32)
        return (
            {PassageId(i): float(score) for i, score in zip(found["ids"], stored @ vector, strict=True)}
            if len(stored)
            else {}
        )

    def close(self) -> None:
        """Let the files go."""
        self._client.close()  # type: ignore[attr-defined]  # declared on the concrete client only
        self._seal.close()
