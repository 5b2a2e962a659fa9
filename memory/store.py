"""One door to the text of record, the lexical index inside it, and Chroma: put, find, forget, and keep
them equal."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from memory.embed import Embedder, Vectors
from memory.filter import Filter
from memory.passages import Indexed, NewPassage, PassageDb
from memory.picture_model import PictureModel
from memory.pictures import Pictures
from memory.types import OnProgress, Passage, PassageId, Progress, RecallError, Source, SourceId, SourceKind
from memory.vectors import Near, VectorIndex

T = TypeVar("T")
_ROUND = 256
"""Passages re-indexed between two looks at what is still missing."""
_PATIENCE_SECONDS = 60.0
"""How long a search waits for the embedder to be read from disk (once, at start) before it goes by words
only."""


class Store:
    """Passages with both indexes. Writers hold a lock for one batch at most; searches hold none of them."""

    def __init__(
        self,
        folder: Path,
        embedder: Embedder,
        on_progress: OnProgress | None,
        picture_model: PictureModel | None = None,
    ) -> None:
        """Open the text at once; the vectors are opened, compared and completed in the background."""
        self.passages = PassageDb(folder / "passages.db")
        self.pictures = Pictures(self.passages, folder / "pictures", picture_model) if picture_model else None
        self._folder = folder / "vectors"
        self._embedder = embedder
        self._on_progress = on_progress
        self._vectors: VectorIndex | None = None
        self._opened = threading.Event()
        self._complete = threading.Event()
        self._closing = threading.Event()
        self._writing, self._opening = threading.Lock(), threading.Lock()
        self.problem = ""
        """Why there are no vectors, as one sentence; empty while all is well."""
        self._worker = threading.Thread(target=self._prepare, name="memory-index", daemon=True)
        self._worker.start()
        if self.pictures is not None:
            self.pictures.begin(self._opened)

    # --- keeping Chroma equal to the text -------------------------------------------------------------------

    def _scrub_rest(self) -> None:
        """Scrub what a program deleted that died before it could."""
        with self._writing, suppress(sqlite3.Error, RecallError):  # it stays due, and is tried at the next start
            if self.passages.is_unscrubbed():
                self.passages.scrub()

    def _prepare(self) -> None:
        self._scrub_rest()
        self.passages.warm()
        try:
            dimension = self._embedder.dimension
            with self._opening:
                if not self._closing.is_set():
                    self._vectors = VectorIndex.open_sound(self._folder, self._embedder.id, dimension)
        except RecallError as error:
            self.problem = str(error)
        except Exception as error:  # a broken torch or Chroma must not take the words down with it
            self.problem = f"Search goes by words only ({type(error).__name__}: {error}): reinstall aios-chat."
        self._opened.set()
        try:
            if self._vectors is not None:
                self._reconcile(self._vectors)
        except Exception as error:  # as above: reported through `problem`, and tried again at the next start
            self.problem = f"The vectors could not be completed ({error}): close aios-chat and start it again."
        self._complete.set()

    def _reconcile(self, vectors: VectorIndex) -> None:
        there = vectors.ids()
        wanted = self.passages.ids()
        over = sorted(there.difference(wanted))
        with self._writing:
            # What was stored between the two looks is not over.
            alive = self.passages.get(over) if over else {}
            vectors.delete([identifier for identifier in over if identifier not in alive])
        missing = [identifier for identifier in wanted if identifier not in there]
        for first in range(0, len(missing), _ROUND):
            part = missing[first : first + _ROUND]
            known = vectors.known(part)

            def report(done: int, first: int = first) -> None:
                if self._on_progress is not None:
                    self._on_progress(Progress("embed", first + done, len(missing)))

            self.index([identifier for identifier in part if identifier not in known], report)
            if self._closing.is_set():
                return

    def index(self, ids: Sequence[PassageId], on_done: Callable[[int], None] | None = None) -> None:
        """Embed these passages and store their vectors, batch by batch. Without vectors yet it is left to
        `_prepare`."""
        if self._vectors is None:
            return
        # Shortest first: a batch is padded to its longest text. 90,000 words take 34.6 processor seconds, unsorted
        # 39.6.
        keys = sorted(self.passages.keys(ids), key=lambda key: len(key[1]))
        done = 0
        for batch in self._embedder.passages([key for _, key in keys]):
            part = [identifier for identifier, _ in keys[done : done + len(batch)]]
            self._store(part, batch)
            done += len(batch)
            if on_done is not None:
                on_done(done)
            if self._closing.is_set():
                return

    def _store(self, ids: Sequence[PassageId], batch: Vectors) -> None:
        with self._writing:
            if self._vectors is None:
                return
            # Between embedding and now a passage may have been forgotten: its vector must not come back.
            alive = self.passages.get(ids)
            chosen = [number for number, identifier in enumerate(ids) if identifier in alive]
            self._vectors.upsert([alive[ids[number]] for number in chosen], batch[chosen])

    def wait_for_vectors(self, timeout: float | None = _PATIENCE_SECONDS) -> bool:
        """Wait until the embedder and Chroma are open; False when they are not."""
        return self._opened.wait(timeout) and self._vectors is not None

    def wait_until_complete(self, timeout: float | None = None) -> bool:
        """Wait until every passage has its vector (or never will: see `problem`)."""
        return self._complete.wait(timeout)

    def drop_vectors(self) -> None:
        """Throw the vectors away, Chroma's files included; `index` makes them anew. Searches meanwhile go by words.
        Raises RecallError when Chroma cannot begin again."""
        with self._writing:
            old, self._vectors = self._vectors, None
            if old is not None:
                old.close()
                shutil.rmtree(self._folder)
                self._vectors = VectorIndex.open_sound(self._folder, self._embedder.id, self._embedder.dimension)

    def unindexed(self) -> int:
        """How many passages have no vector."""
        return max(0, self.passages.count() - self._ask(lambda vectors: vectors.count(), 0))

    # --- put and forget -------------------------------------------------------------------------------------

    def put(
        self,
        source: Source,
        added: float,
        new: Sequence[NewPassage],
        format_: str = "",
        pages: int | None = None,
        left: Sequence[int] = (),
    ) -> int:
        """Commit text: from here on it is found by its words. `index` adds the vectors. `left` are a document's pages
        that are still to be read."""
        return self.passages.put(source, added, new, format_, pages, left)

    def forget(self, ids: Sequence[PassageId], source: SourceId | None = None) -> int:
        """Remove passages, the digests of their messages (and the source's own row): text, terms, vectors, and the
        freed bytes of the text. Returns how many passages are gone."""
        with self._writing:
            gone = self.passages.delete(ids)
            if source is not None:
                self.passages.drop_source(source)
            if self._vectors is not None:
                self._vectors.delete(gone)
            if self.pictures is not None:
                self.pictures.forget(gone)
            if self.passages.is_unscrubbed():
                self.passages.scrub()
        return len(gone)

    # --- find -----------------------------------------------------------------------------------------------

    def near(self, question: str, limit: int, within: Filter) -> tuple[Vectors | None, list[Near]]:
        """The question's vector and the nearest passages; (None, []) while there are no vectors."""
        if not self.wait_for_vectors():
            return None, []
        vector = self._embedder.question(question)
        return vector, self._ask(lambda vectors: self._near(vectors, vector, limit, within), [])

    def _near(self, vectors: VectorIndex, vector: Vectors, limit: int, within: Filter) -> list[Near]:
        if within.messages is not None:
            among = self.passages.ids(messages=sorted(within.messages))
            return vectors.near_among(vector, limit, among)
        if within.sources is not None:
            return vectors.near_in(vector, limit, within.sources)
        if within.documents is None or within.kind is SourceKind.CHAT:
            return vectors.near(vector, limit, within.kind)
        # Of all documents the nearest may lie outside: these are asked for by themselves, and so are the chats.
        near = vectors.near_in(vector, limit, sorted(within.documents))
        return [*near, *vectors.near(vector, limit, SourceKind.CHAT)] if within.kind is None else near

    def vectors(self, ids: Sequence[PassageId]) -> dict[PassageId, Vectors]:
        """The vectors of given passages, shape [dimension] each; those that have none yet are left out."""
        return self._ask(lambda vectors: vectors.rows(ids), {})

    def _ask(self, ask: Callable[[VectorIndex], T], otherwise: T) -> T:
        """What the vectors say; `otherwise` without them, also when a rebuild throws them away under the question."""
        vectors = self._vectors
        try:
            return otherwise if vectors is None else ask(vectors)
        except Exception:  # a client that was closed raises what it likes
            if vectors is self._vectors:
                raise
            return otherwise

    def match(self, terms: Sequence[str], limit: int, within: Filter) -> list[PassageId]:
        """The best passages by their words, best first."""
        return self.passages.match(terms, limit, within)

    def around(self, ids: Sequence[PassageId], reach: int) -> list[Indexed]:
        """Passages with their index terms, and what stands around them in their chats."""
        return self.passages.around(ids, reach)

    def get(self, ids: Sequence[PassageId]) -> dict[PassageId, Passage]:
        """Passages by id."""
        return self.passages.get(ids)

    def close(self) -> None:
        """End the background work and close the files. An embedder that is still being read (torch and its model,
        several seconds) is not waited for: nothing was opened with it."""
        with self._opening:
            self._closing.set()
        if self.pictures is not None:
            self.pictures.close()
        if self._vectors is not None:
            self._worker.join()
        with self._writing:
            if self._vectors is not None:
                self._vectors.close()
            self.passages.close()
