"""Pictures found by what they show: small copies beside the passages, and an index of their vectors made from them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memory.passages import PassageDb
from memory.picture_model import PictureModel
from memory.types import Passage, PassageId, RecallError, SourceId
from memory.vectors import VectorIndex

SURE = 0.5
"""A question that fits a picture no better than "a picture" does not mean it."""
_PATIENCE_SECONDS = 60.0
_LIMIT = 30
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """The passage of a picture that shows what was asked for; `sureness` is `SURE`..1."""

    id: PassageId
    sureness: float


class Pictures:
    """The pictures of one memory. Without any, the model is never loaded by a search."""

    def __init__(self, passages: PassageDb, folder: Path, model: PictureModel) -> None:
        """`begin` opens the index."""
        self._passages, self._folder, self._model = passages, folder, model
        self._index: VectorIndex | None = None
        self._opened = threading.Event()
        self._changing = threading.Lock()
        self._closed = False
        self.problem = ""
        """Why pictures are not found by what they show, as one sentence; empty while all is well."""

    def begin(self, after: threading.Event) -> None:
        """Open the index in the background, once `after` is set; a picture without its vector gets one, a vector
        without its picture goes."""
        threading.Thread(target=self._prepare, args=(after,), name="memory-pictures", daemon=True).start()

    def _prepare(self, after: threading.Event) -> None:
        after.wait()
        try:
            dimension = self._model.load().get_embedding_dimension()
            if dimension is None:
                raise RecallError("The image embedder does not say how long its vectors are: choose another.")
            with self._changing:
                if not self._closed:
                    self._index = VectorIndex.open_sound(self._folder, self._model.id, int(dimension))
                    self._complete(self._index)
        except RecallError as error:
            self.problem = str(error)
        except Exception as error:  # a broken model must not take the words down with it
            _logger.warning("the index of pictures cannot be opened", exc_info=True)
            self.problem = f"Pictures are not found by what they show ({type(error).__name__}: {error})."
        self._opened.set()

    def _complete(self, index: VectorIndex) -> None:
        wanted = [PassageId(str(row[0])) for row in self._passages.rows("SELECT passage FROM pictures")]
        there = index.ids()
        index.delete(sorted(there.difference(wanted)))
        for identifier in wanted:
            if identifier not in there:
                self._put(index, identifier)

    def _put(self, index: VectorIndex, identifier: PassageId) -> None:
        rows = self._passages.rows("SELECT image FROM pictures WHERE passage = ?", identifier)
        passage = self._passages.get([identifier]).get(identifier)
        if rows and passage is not None and isinstance(image := rows[0][0], bytes):
            index.upsert([passage], self._model.picture(image)[None, :])

    def keep(self, passage: Passage, image: bytes) -> None:
        """A passage is that of a picture, of which `image` is a small copy. Raises RecallError where the model cannot
        take it; its words are found all the same."""
        with self._passages.transaction() as db:
            db.execute("INSERT OR REPLACE INTO pictures(passage, image) VALUES (?, ?)", (passage.id, image))
        self._opened.wait(_PATIENCE_SECONDS)
        with self._changing:
            if self._index is not None:
                self._put(self._index, passage.id)

    def has(self, source: SourceId) -> bool:
        """Whether there is a picture of this document."""
        rows = self._passages.rows(
            "SELECT 1 FROM pictures JOIN passages p ON p.id = passage WHERE p.source = ? LIMIT 1", source
        )
        return bool(rows)

    def near(self, question: str) -> list[Seen]:
        """The pictures that show what a question asks for, surest first."""
        if not self._passages.rows("SELECT 1 FROM pictures LIMIT 1"):
            return []
        self._opened.wait(_PATIENCE_SECONDS)
        index = self._index
        if index is None or self._closed:
            return []
        vector = self._model.question(question)
        ids = [found.id for found in index.near(vector, _LIMIT, None)]
        sure = {identifier: self._model.sureness(vector, row) for identifier, row in index.rows(ids).items()}
        return sorted((Seen(i, s) for i, s in sure.items() if s >= SURE), key=lambda seen: -seen.sureness)

    def forget(self, ids: Sequence[PassageId]) -> None:
        """The vectors of passages that are gone; their copies went with them."""
        with self._changing:
            if self._index is not None:
                self._index.delete(ids)

    def close(self) -> None:
        """Let the files go."""
        with self._changing:
            self._closed = True
            if self._index is not None:
                self._index.close()
