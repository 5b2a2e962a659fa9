"""Chroma as a cache of vectors: ids, vectors and source ids; never a text. Everything in it can be made
again."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memory.embed import Vectors
from memory.types import Passage, PassageId, RecallError, SourceId

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_NAME = "passages"
_RULE = "1"
"""Raise it when keys.py or chunking.py change what is embedded: every vector is then made again."""
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

    def verify(self) -> None:
        """Look whether the index still answers; make it anew when it does not.

        With its segment folder lost Chroma 1.5.9 still counts every record but finds one of five: no
        error, hence the question.
        """
        count = self._collection.count()
        if count == 0:
            return
        probe = np.full((1, int(str(self._mark["dimension"]))), 1.0, dtype=np.float32)
        wanted = min(count, 10)
        try:
            found = len(self._collection.query(query_embeddings=probe, n_results=wanted, include=[])["ids"][0])
        except Exception:  # any failure of a derived index has the same remedy
            found = 0
        if found < wanted:
            self._collection = self._make_anew()

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
