"""The memory as one object: open a folder, read files, remember turns, recall, cite, forget."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from memory import inventory, unread, web
from memory.chunking import Chunk, Chunker, Section, chunk_tokens
from memory.digest import Kept, Segment, keep, makers, next_segment
from memory.embed import Embedder
from memory.filter import Filter
from memory.ingest.extract import Extract, Format, Job, Reader
from memory.ingest.parts import AT_ONCE
from memory.ingest.readers import read_file
from memory.ingest.sniff import check
from memory.passages import NewPassage
from memory.picture_model import THUMBNAIL, PictureModel
from memory.places import under
from memory.recall.cite import cite
from memory.recall.rank import rank
from memory.recall.recall import Recaller
from memory.recall.search import query_of, search
from memory.store import Store
from memory.types import (
    Counts,
    DocumentRow,
    Hit,
    IngestCancelledError,
    IngestError,
    IngestReport,
    MemoryLockedError,
    Message,
    NeedsPasswordError,
    NoTextError,
    OnProgress,
    Passage,
    PassageId,
    Place,
    Progress,
    Recall,
    RecallError,
    RecallRequest,
    Source,
    SourceId,
    SourceKind,
    TokenCounter,
)

_HASH_CHUNK = 1 << 20


class Memory:
    """One memory folder, owned by this process. Every method may be called from any thread."""

    def __init__(
        self, folder: Path, store: Store, embedder: Embedder, lock: FileLock, ocr_languages: str, read: Reader
    ) -> None:
        """Use `Memory.open`."""
        self._folder = folder
        self._store = store
        self._embedder = embedder
        self._lock = lock
        self._ocr_languages = ocr_languages
        self._read = read
        self._chunker = Chunker(embedder.tokenizer, chunk_tokens(embedder.limit))
        self._reads_unspaced = embedder.reads_unspaced_scripts()
        self._recaller = Recaller(store, self._reads_unspaced)

    @classmethod
    def open(
        cls,
        folder: Path,
        embedder: Path,
        ocr_languages: str = "eng",
        on_progress: OnProgress | None = None,
        threads: int = 2,
        read: Reader = read_file,
        image_embedder: Path | None = None,
    ) -> Memory:
        """Open or create the memory in `folder`. Returns at once: model and vectors are loaded in the
        background.

        Raises MemoryLockedError when another process owns the folder, RecallError when the embedder or the
        stored text cannot be read. `on_progress` hears how far re-indexing is ("embed"), from another thread.
        `read` takes files apart: here, or in a process of its own. With an `image_embedder` pictures are found by what
        they show as well.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RecallError(
                f"The folder {folder} cannot be made ({error.strerror or error}): choose another."
            ) from error
        lock = FileLock(folder / "memory.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise MemoryLockedError(
                f"The memory in {folder} is in use by another aios-chat: close that one first."
            ) from error
        try:
            model = Embedder(embedder, threads)
            pictures = PictureModel(image_embedder) if image_embedder is not None else None
            return cls(folder, Store(folder, model, on_progress, pictures), model, lock, ocr_languages, read)
        except BaseException:
            lock.release()
            raise

    # --- documents ------------------------------------------------------------------------------------------

    def ingest(
        self,
        path: Path,
        name: str,
        origin: str,
        on_progress: OnProgress,
        cancelled: Callable[[], bool],
        password: str = "",
    ) -> IngestReport:
        """Read one file, store its passages, and embed them. Found by its words as soon as it is read. What `origin`
        held before is forgotten, unless it stands at another place as well.

        Of pages that need OCR some are read, and the report says how many are `left`; the same call again goes on
        behind them, also after a restart.

        Raises IngestError (one sentence) for a file that cannot be read, IngestCancelledError when
        stopped; then nothing is kept of what this call read.
        """
        check(path, name)
        source = Source(_content_id(path), SourceKind.DOCUMENT, name, origin)
        known = next((row for row in self._store.passages.documents() if row.source.id == source.id), None)
        left = unread.pages(self._store.passages, source.id)
        job = self._job(path, name, on_progress, cancelled, password, left)
        if known is not None and not left:
            self._see(job, known)
            self._store.put(source, known.added, (), known.kind, known.pages)
            replaced = self._forget_at(origin, source.id)
            return IngestReport(source, known.kind, known.pages, known.passages, already_known=True, replaced=replaced)
        extract = self._read(job) if known is None else self._read_on(job, known)
        passages = self._document_passages(job, source, extract)
        job.step("store", 0, len(passages))
        self._store.put(source, time.time(), passages, extract.format, extract.pages, extract.left)
        if self._store.pictures is not None and extract.thumbnail and passages:
            self._store.pictures.keep(passages[0].passage, extract.thumbnail)
        try:
            self._index_document(job, [item.passage.id for item in passages])
        except IngestCancelledError:
            if known is None:
                self.forget(source.id)
            raise
        replaced = self._forget_at(origin, source.id)
        on_progress(Progress("store", len(passages), len(passages)))
        count = len(passages) + (known.passages if known is not None else 0)
        if not count and not extract.left:
            self.forget(source.id)
            raise NoTextError(" ".join((f"{name} has no text to read.", *extract.warnings[:1])))
        return IngestReport(
            source,
            extract.format,
            extract.pages,
            count,
            warnings=extract.warnings,
            confidence=extract.confidence,
            replaced=replaced,
            left=len(extract.left),
        )

    def _job(
        self,
        path: Path,
        name: str,
        on_progress: OnProgress,
        cancelled: Callable[[], bool],
        password: str,
        pages: tuple[int, ...],
    ) -> Job:
        side = THUMBNAIL if self._store.pictures is not None else 0
        return Job(path, name, self._ocr_languages, on_progress, cancelled, password, pages, side)

    def _see(self, job: Job, known: DocumentRow) -> None:
        """A picture that was read before there was an image embedder gets its copy now."""
        pictures = self._store.pictures
        if pictures is None or known.kind != Format.IMAGE or pictures.has(known.source.id):
            return
        first = self._store.passages.first(known.source.id, 1)
        if first and (image := self._read(job).thumbnail):
            pictures.keep(first[0], image)

    def _read_on(self, job: Job, known: DocumentRow) -> Extract:
        """The next pages of a document that was not read to its end. Where they take the reader down they are left out:
        the others must not wait for ever."""
        try:
            return self._read(job)
        except (IngestCancelledError, NeedsPasswordError):
            raise
        except IngestError as error:
            out, rest = job.pages[:AT_ONCE], job.pages[AT_ONCE:]
            which = f"Page {out[0]}" if len(out) == 1 else f"Pages {out[0]} to {out[-1]}"
            warning = f"{which} of {job.name} could not be read and are left out. {error}"
            return Extract(Format(known.kind), (), known.pages, (warning,), left=rest)

    def forget_path(self, origin: str) -> tuple[SourceId, ...]:
        """A file is gone from `origin`: forget what it held, unless that stands at another place as well. Returns the
        documents forgotten."""
        return self._forget_at(origin, SourceId(""))

    def _forget_at(self, origin: str, but: SourceId) -> tuple[SourceId, ...]:
        gone = self._store.passages.leave(origin, but) if origin else ()
        for source in gone:
            self.forget(source)
        return gone

    def _document_passages(self, job: Job, source: Source, extract: Extract) -> list[NewPassage]:
        now = time.time()
        chunks = list[Chunk]()
        for done, section in enumerate(extract.sections):
            for some in self._chunker.stretches(section, extract.layout):
                job.step("store", done, len(extract.sections))
                chunks += some
        first = unread.first_ordinal(self._store.passages, source.id, chunks[0].page or 1) if chunks else 0
        return [
            NewPassage(_passage(source, chunk, ordinal, now), heading=chunk.heading)
            for ordinal, chunk in enumerate(chunks, start=first)
        ]

    def _index_document(self, job: Job, ids: Sequence[PassageId]) -> None:
        job.step("embed", 0, len(ids))
        if self._store.wait_for_vectors():
            self._store.index(ids, lambda done: job.step("embed", done, len(ids)))

    def documents(self) -> list[DocumentRow]:
        """Every ingested document, newest first."""
        return self._store.passages.documents()

    def documents_under(self, paths: Sequence[str]) -> frozenset[SourceId]:
        """The documents whose files were given at, or below, one of these absolute paths."""
        return under(self._store.passages, paths)

    # --- the web --------------------------------------------------------------------------------------------

    def keep_web(self, results: Sequence[web.Result], seconds: float) -> list[SourceId]:
        """Store what a web search found, for so many seconds; the ids of its sources, in order."""
        web.purge(self._store, time.time())
        return web.keep(self._store, results, seconds)

    # --- turns ----------------------------------------------------------------------------------------------

    def remember(self, messages: Sequence[Message]) -> int:
        """Store chat messages; a message whose text has changed replaces its former self. Returns new
        passages."""
        web.purge(self._store, time.time())
        new, unindexed = 0, list[PassageId]()
        for message in messages:
            source = Source(message.chat, SourceKind.CHAT, message.chat_title)
            ordinal = self._store.passages.next_ordinal(source.id)
            chunks = self._chunker.chunks(Section(message.text))
            passages = [
                NewPassage(
                    _passage(source, chunk, ordinal + number, message.time, message.id, message.role),
                    parent=message.parent,
                )
                for number, chunk in enumerate(chunks)
            ]
            wanted = {item.passage.id for item in passages}
            stale = [i for i in self._store.passages.ids(source.id, [message.id]) if i not in wanted]
            if stale:
                self._store.forget(stale)
            added = self._store.put(source, message.time, passages)
            if added:
                unindexed += [item.passage.id for item in passages]
            new += added
        # All at once: the embedder takes several for hardly more than one.
        self._store.index(unindexed)
        return new

    # --- questions ------------------------------------------------------------------------------------------

    def search(self, query: str, limit: int = 10, kind: SourceKind | None = None) -> list[Hit]:
        """The best passages of everything, or of one kind of source, near-duplicates removed."""
        if not query.strip():
            return []
        within = Filter(kind=kind, without=web.expired(self._store.passages, time.time()))
        found = search(self._store, query_of(query, self._reads_unspaced, time.time()), within, max(60, 4 * limit))
        request = RecallRequest("", SourceId(""))
        best = rank(found, request, limit, cap_sources=False, question=query)
        return [Hit(c.passage, round(c.score, 4), round(c.dense, 4), round(c.lexical, 4)) for c in best]

    def recall(self, request: RecallRequest, count_tokens: TokenCounter) -> Recall:
        """What the next answer may need and the window no longer holds, as a fenced block within the
        budget."""
        over = web.expired(self._store.passages, time.time())
        here = tuple(document for document in request.chat_documents if document not in over)
        return self._recaller.recall(replace(request, chat_documents=here, expired=over), count_tokens)

    def cite(self, question: str, answer: str, passages: Sequence[Passage]) -> tuple[str, tuple[str, ...]]:
        """The answer without marks that name nothing delivered, and the labels it rests on, strongest
        first."""
        return cite(question, answer, passages)

    # --- digests --------------------------------------------------------------------------------------------

    def next_segment(self, visible: Sequence[str]) -> Segment | None:
        """Turns that have left the window (they are not `visible`) and are summed up next; None when there are none."""
        return next_segment(self._store.passages, frozenset(visible), time.time())

    def keep_digest(self, chat: SourceId, messages: Sequence[str], summary: str, maker: str) -> Kept | None:
        """Store the digest of a segment; see `digest.keep`."""
        return keep(self._store, chat, messages, summary, maker)

    def digest_makers(self) -> list[tuple[str, int]]:
        """Who wrote digests, and how many each."""
        return makers(self._store.passages)

    # --- the rest -------------------------------------------------------------------------------------------

    def forget(self, source_id: SourceId, messages: Sequence[str] = ()) -> int:
        """Remove a document, a whole chat, or single messages of a chat. Returns how many passages are
        gone."""
        chosen = self._store.passages.ids(source_id, messages or None)
        if messages:
            self._untitle(source_id, chosen)
        return self._store.forget(chosen, None if messages else source_id)

    def _untitle(self, source_id: SourceId, going: Sequence[PassageId]) -> None:
        """Take away a chat's title that was made of a message which goes."""
        source = self._store.passages.source(source_id)
        start = " ".join(source.title.removesuffix("…").split()) if source is not None else ""
        texts = [" ".join(passage.text.split()) for passage in self._store.passages.get(going).values()]
        if source is not None and start and any(text.startswith(start) for text in texts):
            self._store.put(replace(source, title=""), time.time(), ())

    def counts(self) -> Counts:
        """What the memory holds, and why it may search by words only."""
        passages = self._store.passages
        return Counts(
            documents=len(passages.sources(SourceKind.DOCUMENT)),
            chats=len(passages.sources(SourceKind.CHAT)),
            passages=passages.count(),
            unindexed=self._store.unindexed(),
            embedder=self._embedder.name,
            problem=self._store.problem or (self._store.pictures.problem if self._store.pictures is not None else ""),
        )

    def sources(self) -> list[inventory.SourceRow]:
        """Every chat and document, the one that was added last first."""
        return inventory.sources(self._store.passages)

    def passages(self) -> Iterator[list[Passage]]:
        """Every passage, source by source, some at a time."""
        return inventory.passages(self._store.passages)

    def sizes(self) -> list[inventory.Size]:
        """What the memory takes on disk."""
        return inventory.sizes(self._folder)

    def rebuild(self, on_progress: OnProgress) -> int:
        """Make both indexes anew from the stored text; see `inventory.rebuild`. Returns how many passages there are."""
        return inventory.rebuild(self._store, lambda done, total: on_progress(Progress("embed", done, total)))

    def wait_until_open(self) -> bool:
        """Wait until the embedder and the vectors are open; False when they are not to be had (see `counts`)."""
        return self._store.wait_for_vectors()

    def wait_until_indexed(self, timeout: float | None = None) -> bool:
        """Wait for the background work that `open` began; False when it is not done in time."""
        return self._store.wait_until_complete(timeout)

    def close(self) -> None:
        """Close the files and let the folder go."""
        self._store.close()
        self._lock.release()


def _content_id(path: Path) -> SourceId:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_HASH_CHUNK):
            digest.update(part)
    return SourceId(digest.hexdigest())


def _passage(
    source: Source,
    chunk: Chunk,
    ordinal: int,
    when: float,
    message: str | None = None,
    role: str | None = None,
) -> Passage:
    place = Place(chunk.page, chunk.line if message is None else None, message, chunk.start, chunk.end)
    mark = f"{source.id}\0{place.page}\0{message}\0{chunk.start}\0{chunk.text}"
    identifier = PassageId(hashlib.sha256(mark.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return Passage(identifier, source, place, ordinal, when, chunk.text, role, chunk.confidence)
