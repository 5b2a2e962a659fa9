"""The memory's child process: `python -m app.host.memory_child`. Translates between the wire and `memory`."""

from __future__ import annotations

import functools
import os
import threading
import time
from pathlib import Path

from app.host import digests, inspection, wire
from app.host.apart import ApartReader
from app.host.documents import DocumentInfo, ForgetPath, Ingested, IngestProgress, IngestRequest, ListDocuments
from app.host.serve import CallCancelled, Channel, Context, serve
from app.host.web import KeepWeb
from app.ids import ChatId, DocumentId, MessageId
from memory import types
from memory.memory import Memory
from memory.summary import MOST_SUMMARY_TOKENS
from memory.web import Result

NICENESS = 10
"""Reading files yields to the screen and to the engine."""


class MemoryChild:
    """Owns the memory. Handlers run on several threads; `Memory` itself says what may overlap."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._memory: Memory | None = None
        self._opened = threading.Event()
        self._reader = ApartReader()

    def run(self) -> None:
        """Until told to stop."""
        serve(
            {
                wire.MemoryOptions: self._open,
                wire.RecallRequest: self._recall,
                wire.CiteRequest: self._cite,
                wire.SearchRequest: self._search,
                ListDocuments: self._documents,
                digests.NextSegment: self._next_segment,
                inspection.ListSources: self._sources,
                inspection.ListPassages: self._passages,
                inspection.MeasureMemory: self._measure,
                inspection.WhyRequest: self._why,
            },
            background={
                IngestRequest: self._ingest,
                wire.RememberRequest: self._remember,
                wire.ForgetRequest: self._forget,
                ForgetPath: self._forget_path,
                inspection.Rebuild: self._rebuild,
                digests.KeepDigest: self._keep_digest,
                KeepWeb: self._keep_web,
            },
            expected=(types.RecallError,),
            on_stop=self._close,
            channel=self._channel,
        )

    def _open(self, options: wire.MemoryOptions, context: Context) -> wire.MemoryReady:
        self._reader = ApartReader(scratch=Path(options.folder) / "reader")
        try:
            self._memory = memory = Memory.open(
                Path(options.folder),
                Path(options.embedder),
                options.ocr_languages,
                lambda progress: context.push(wire.LoadProgress(progress.done, progress.total)),
                read=self._reader,
                image_embedder=Path(options.image_embedder) if options.image_embedder else None,
            )
        finally:
            self._opened.set()
        self._reader.close()  # the folder is ours now: what a killed reader left there goes
        counts = memory.counts()
        warnings = (counts.problem,) if counts.problem else ()
        return wire.MemoryReady(counts.documents, counts.passages, counts.embedder, warnings)

    def _close(self) -> None:
        if self._memory is not None:  # else the folder, and the reader's in it, are another program's
            self._reader.close()
            self._memory.close()

    def _ready(self) -> Memory:
        """The open memory; a call that comes while it opens, as after a restart, waits."""
        self._opened.wait()
        if self._memory is None:
            raise types.RecallError("the memory is not open yet")
        return self._memory

    def _recall(self, request: wire.RecallRequest, _context: Context) -> wire.Recalled:
        recall = self._recalled(request)
        return wire.Recalled(
            scope=recall.decision.scope.value,
            reason=recall.decision.reason,
            query=recall.decision.query,
            passages=tuple(_passage(hit, str(n)) for n, hit in enumerate(recall.hits, start=1)),
            block=recall.block,
            block_tokens=recall.block_tokens,
            seconds=recall.seconds,
        )

    def _recalled(self, request: wire.RecallRequest) -> types.Recall:
        memory = self._ready()
        here = (types.SourceId(document) for document in (*request.attached, *request.chat_documents))
        return memory.recall(
            types.RecallRequest(
                question=request.question,
                chat=types.SourceId(request.chat),
                visible=frozenset(request.visible),
                delivered=frozenset(request.delivered),
                path=tuple(request.path),
                attached=tuple(types.SourceId(d) for d in request.attached),
                chat_documents=tuple(types.SourceId(d) for d in request.chat_documents),
                earlier=tuple(request.earlier),
                budget_tokens=request.budget_tokens,
                asked=request.asked,
                documents=memory.documents_under(request.bases).union(here) if request.bases else None,
            ),
            token_counter(request.tokenizer_file),
        )

    def _cite(self, request: wire.CiteRequest, _context: Context) -> wire.Cited:
        passages = [_unpassage(p) for p in request.passages]
        answer, labels = self._ready().cite(request.question, request.answer, passages)
        return wire.Cited(answer, tuple(labels))

    def _search(self, request: wire.SearchRequest, _context: Context) -> wire.SearchResult:
        began = time.perf_counter()
        kind = None if request.kind is None else types.SourceKind(request.kind.value)
        hits = self._ready().search(request.query, request.limit, kind)
        passages = tuple(_passage(hit, str(n)) for n, hit in enumerate(hits, start=1))
        return wire.SearchResult(passages, time.perf_counter() - began)

    def _documents(self, _request: ListDocuments, _context: Context) -> tuple[DocumentInfo, ...]:
        return tuple(
            DocumentInfo(
                DocumentId(row.source.id),
                row.source.title,
                row.source.origin,
                row.kind,
                row.pages,
                row.passages,
                row.added,
                row.source.also,
            )
            for row in self._ready().documents()
        )

    def _next_segment(self, request: digests.NextSegment, _context: Context) -> digests.Segment | None:
        found = self._ready().next_segment(request.visible)
        if found is None:
            return None
        messages = tuple(MessageId(message) for message in found.messages)
        source = found.source
        return digests.Segment(ChatId(source.id), source.title, messages, found.question, MOST_SUMMARY_TOKENS)

    def _keep_digest(self, request: digests.KeepDigest, _context: Context) -> digests.KeptDigest | None:
        memory, chat = self._ready(), types.SourceId(request.chat)
        kept = memory.keep_digest(chat, request.messages, request.summary, request.maker)
        return None if kept is None else digests.KeptDigest(kept.text, kept.maker, kept.refused)

    def _keep_web(self, request: KeepWeb, _context: Context) -> tuple[DocumentId, ...]:
        results = [Result(found.url, found.title, found.text) for found in request.results]
        return tuple(DocumentId(source) for source in self._ready().keep_web(results, request.seconds))

    def _sources(self, _request: inspection.ListSources, _context: Context) -> tuple[inspection.SourceInfo, ...]:
        return tuple(
            inspection.SourceInfo(
                id=row.source.id,
                kind=wire.SourceKind(row.source.kind.value),
                title=row.source.title,
                origin=row.source.origin,
                format=row.format,
                pages=row.pages,
                passages=row.passages,
                added=row.added,
                newest=row.newest,
            )
            for row in self._ready().sources()
        )

    def _passages(self, _request: inspection.ListPassages, context: Context) -> int:
        count = 0
        for some in self._ready().passages():
            context.check()
            context.event(tuple(_passage(types.Hit(p, 0.0, 0.0, 0.0), "") for p in some))
            count += len(some)
        return count

    def _measure(self, _request: inspection.MeasureMemory, _context: Context) -> inspection.MemorySize:
        memory = self._ready()
        memory.wait_until_open()
        counts = memory.counts()
        return inspection.MemorySize(
            documents=counts.documents,
            chats=counts.chats,
            passages=counts.passages,
            unindexed=counts.unindexed,
            embedder=counts.embedder,
            problem=counts.problem,
            sizes=tuple(inspection.PartSize(size.part, size.bytes) for size in memory.sizes()),
            digests=tuple(inspection.DigestCount(maker, count) for maker, count in memory.digest_makers()),
        )

    def _why(self, request: inspection.WhyRequest, _context: Context) -> inspection.Why:
        self._ready().wait_until_open()  # else the time that it takes would be told as recall's own
        recall = self._recalled(request.recall)
        return inspection.Why(
            scope=recall.decision.scope.value,
            reason=recall.decision.reason,
            query=recall.decision.query,
            delivered=tuple(
                inspection.Leg(_passage(hit, str(n)), hit.score, hit.dense, hit.lexical)
                for n, hit in enumerate(recall.hits, start=1)
            ),
            found=recall.trace.found if recall.trace else len(recall.hits),
            passed_over=_passed_over(recall.trace) if recall.trace else (),
            block=recall.block,
            block_tokens=recall.block_tokens,
            budget_tokens=request.recall.budget_tokens,
            seconds=recall.seconds,
        )

    def _rebuild(self, _request: inspection.Rebuild, context: Context) -> int:
        def tell(progress: types.Progress) -> None:
            context.check()
            context.event(wire.LoadProgress(progress.done, progress.total))

        return self._ready().rebuild(tell)

    def _ingest(self, request: IngestRequest, context: Context) -> Ingested:
        report = self._ready().ingest(
            Path(request.path),
            request.name,
            request.origin,
            lambda p: context.event(IngestProgress(request.job, p.phase, p.done, p.total)),
            context.cancelled,
            request.password,
        )
        if context.cancelled():
            raise CallCancelled
        return Ingested(
            job=request.job,
            document=DocumentId(report.source.id),
            name=report.source.title,
            kind=report.kind,
            pages=report.pages,
            passages=report.passages,
            already_known=report.already_known,
            warnings=report.warnings,
            replaced=tuple(DocumentId(source) for source in report.replaced),
            confidence=report.confidence,
            left=report.left,
        )

    def _remember(self, request: wire.RememberRequest, _context: Context) -> int:
        return self._ready().remember(
            [
                types.Message(types.SourceId(m.chat), m.chat_title, m.message, m.parent, m.role.value, m.text, m.time)
                for m in request.messages
            ]
        )

    def _forget(self, request: wire.ForgetRequest, _context: Context) -> int:
        return self._ready().forget(types.SourceId(request.source_id), tuple(request.messages))

    def _forget_path(self, request: ForgetPath, _context: Context) -> tuple[DocumentId, ...]:
        return tuple(DocumentId(source) for source in self._ready().forget_path(request.origin))


def _passed_over(trace: types.Trace) -> tuple[inspection.PassedOver, ...]:
    return tuple(
        inspection.PassedOver(
            _passage(types.Hit(one.passage, one.score, one.cosine, 0.0), ""),
            one.by_meaning,
            one.by_words,
            one.score,
            one.nearness,
            one.bar,
            one.fate,
        )
        for one in trace.weighed
        if one.delivered is None
    )


def _passage(hit: types.Hit, label: str) -> wire.Passage:
    p = hit.passage
    return wire.Passage(
        id=p.id,
        label=label,
        source_id=p.source.id,
        source_kind=wire.SourceKind(p.source.kind.value),
        title=p.source.title,
        text=p.text,
        score=hit.score,
        time=p.time,
        path=p.source.origin or None,
        page=p.place.page,
        line=p.place.line,
        message=None if p.place.message is None else MessageId(p.place.message),
        role=p.role,
        turns=tuple(MessageId(turn) for turn in p.turns),
        maker=p.maker,
        confidence=p.confidence,
        heading=p.place.heading,
        also=p.source.also,
    )


def _unpassage(p: wire.Passage) -> types.Passage:
    kind = types.SourceKind(p.source_kind.value)
    source = types.Source(types.SourceId(p.source_id), kind, p.title, p.path or "", p.also)
    place = types.Place(p.page, p.line, p.message, heading=p.heading)
    return types.Passage(types.PassageId(p.id), source, place, 0, p.time, p.text, p.role, p.confidence)


def token_counter(tokenizer_file: str) -> types.TokenCounter:
    """Counts in the chat model's own tokens, by the tokenizer that the engine's child wrote.

    Before that file exists it errs on the long side: two bytes of UTF-8 a token.
    """
    try:
        return _counter(tokenizer_file, os.stat(tokenizer_file).st_mtime_ns)
    except OSError:
        return lambda text: -(-len(text.encode()) // 2)


@functools.lru_cache(maxsize=2)
def _counter(tokenizer_file: str, _written: int) -> types.TokenCounter:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    os.nice(NICENESS)
    MemoryChild(Channel.from_arguments()).run()
