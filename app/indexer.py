"""Carries the outbox to the memory: messages to remember, files to ingest, sources to forget.

At least once, idempotent there, resumed at start; nothing is lost when the memory is down, it only waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from app.drop.stage import sweep, unstage, unstage_content
from app.events import IngestJob, JobChanged, JobPhase, Listener, Notice, Severity
from app.host import wire
from app.host.documents import Ingested, IngestProgress, IngestRequest, Refusal
from app.host.host import Host
from app.host.stream import CallFailedError, ChildDiedError, HostError
from app.ids import ChatId, DocumentId, JobId, MessageId, new_job_id
from app.store.store import IngestPayload, Store, StoreError, forget_request
from app.store.types import Attachment, OutboxItem, OutboxKind

BATCH = 16
RETRY_SECONDS = 2.0
_ENDS = (JobPhase.DONE, JobPhase.FAILED)
YOUNG_SECONDS = 3600.0
"""A copy younger than this may belong to a message that is still being written, in this program or another."""


class Indexer:
    """Works the outbox while it runs; wake it with `wake` after something was put in."""

    def __init__(self, store: Store, host: Host, emit: Listener, files: Path) -> None:
        """`files` keeps the staged copies."""
        self._store, self._host, self._emit, self._files = store, host, emit, files
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._jobs: dict[str, IngestJob] = {}
        self._settled: dict[str, asyncio.Event] = {}
        self._payloads: dict[JobId, IngestPayload] = {}
        self._passwords: dict[str, str] = {}  # by staged copy; never in a store
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def jobs(self) -> tuple[IngestJob, ...]:
        """Every ingestion of this run, oldest first."""
        return tuple(self._jobs.values())

    def start(self) -> None:
        """Begin; the memory must be up."""
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        self.wake()

    def wake(self) -> None:
        """Something is in the outbox."""
        self._idle.clear()
        self._wanted.set()

    async def stop(self) -> None:
        """End; what is under way is done again at the next start."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def ingest(self, chat: ChatId | None, attachment: Attachment, password: str = "") -> IngestJob:
        """Put a staged file into the outbox; returns its job."""
        payload = IngestPayload(attachment.staged, attachment.name, attachment.origin, chat)
        return await self._enqueue(payload, password)

    async def unlock(self, job: JobId, password: str) -> None:
        """Read a file again that needed a password."""
        await self._enqueue(self._payloads[job], password)

    async def _enqueue(self, payload: IngestPayload, password: str) -> IngestJob:
        job = self._job(payload)
        self._payloads[job.id] = payload
        if password:
            self._passwords[payload.staged] = password
        if job.phase in (JobPhase.FAILED, JobPhase.DONE):
            again = replace(job, phase=JobPhase.WAITING, detail="", done=0, total=0, needs_password=False)
            job = self._update(payload.staged, again)
        self._settled[payload.staged].clear()
        await asyncio.to_thread(self._store.enqueue_ingest, payload)
        self.wake()
        return job

    def fail_waiting(self, sentence: str) -> None:
        """The memory will not come up in this run: nobody need wait for a file. The outbox keeps them all."""
        for staged, job in list(self._jobs.items()):
            if job.phase not in (JobPhase.DONE, JobPhase.FAILED):
                self._update(staged, replace(job, phase=JobPhase.FAILED, detail=sentence))
                self._settled[staged].set()

    async def documents(self, attachments: Sequence[Attachment]) -> tuple[DocumentId, ...]:
        """Wait until these files are ingested or have failed; the documents of those that are there.

        Their messages learn them too: a file may have been ready before its message was committed.
        """
        found = []
        for attachment in attachments:
            if attachment.staged in self._settled:
                await self._settled[attachment.staged].wait()
            job = self._jobs.get(attachment.staged)
            document = job.document if job is not None else attachment.document
            if document is not None:
                await asyncio.to_thread(self._store.set_document, attachment.staged, document)
                found.append(document)
        return tuple(found)

    async def drained(self) -> None:
        """Wait until the outbox holds nothing that can be done now; returns at once when it is not worked."""
        if self._task is not None:
            await self._idle.wait()

    def _job(self, payload: IngestPayload) -> IngestJob:
        if payload.staged not in self._jobs:
            self._settled[payload.staged] = asyncio.Event()
            self._update(payload.staged, IngestJob(new_job_id(), payload.chat, payload.name, JobPhase.WAITING))
        return self._jobs[payload.staged]

    def _update(self, staged: str, job: IngestJob) -> IngestJob:
        self._jobs[staged] = job
        self._emit(JobChanged(job))
        return job

    async def _work(self) -> None:
        await self._sweep()
        while True:
            self._wanted.clear()
            items = await asyncio.to_thread(self._store.pending, BATCH)
            if not items:
                self._idle.set()
                await self._wanted.wait()
                continue
            if not await self._carry(items):
                await asyncio.sleep(RETRY_SECONDS)

    async def _carry(self, items: list[OutboxItem]) -> bool:
        """Do the leading run of messages to remember in one call, or one other item; False when it failed."""
        kind = items[0].kind
        batch = _leading_messages(items) or items[:1]
        try:
            match kind:
                case OutboxKind.REMEMBER:
                    await self._remember(batch)
                case OutboxKind.INGEST:
                    await self._ingest(batch[0])
                case OutboxKind.FORGET:
                    await self._host.forget(forget_request(batch[0].key))
        except HostError as error:
            for item in batch:
                await asyncio.to_thread(self._store.failed, item.id, str(error))
            return False
        for item in batch:
            payload = IngestPayload.from_key(item.key) if item.kind is OutboxKind.INGEST else None
            if payload is not None and self._jobs[payload.staged].phase not in _ENDS:
                # Pages are left: they are read after what else waits, and after a restart. It moves to the end.
                await asyncio.to_thread(self._store.enqueue_ingest, payload)
                continue
            await asyncio.to_thread(self._store.done, item.id)
            if payload is not None:
                await asyncio.to_thread(self._drop_refused, payload.staged)
        return True

    async def _remember(self, items: list[OutboxItem]) -> None:
        messages = [await asyncio.to_thread(self._store.remembered, MessageId(item.key)) for item in items]
        await self._host.remember(wire.RememberRequest(tuple(m for m in messages if m is not None and m.text)))

    async def _ingest(self, item: OutboxItem) -> None:
        payload = IngestPayload.from_key(item.key)
        job = self._job(payload)
        if job.document is None:  # else some of its pages are read already
            job = self._update(payload.staged, replace(job, phase=JobPhase.WAITING, done=0, total=0))
        password = self._passwords.get(payload.staged, "")
        request = IngestRequest(job.id, payload.staged, payload.name, payload.origin, password)
        try:
            async with self._host.ingest(request) as stream:
                async for event in stream:
                    job = await self._hear(payload, job, event)
        except CallFailedError as error:
            if error.kind == Refusal.PASSWORD:
                self._passwords.pop(payload.staged, None)
                self._update(payload.staged, replace(self._jobs[payload.staged], needs_password=True))
            self._give_up(item, payload, str(error))
            if error.kind not in list(Refusal):
                raise
        except ChildDiedError:
            # Once may be chance. A file that takes the memory down each time must not do so at every start.
            if item.attempts == 0 or self._jobs[payload.staged].phase is JobPhase.WAITING:
                raise
            self._give_up(item, payload, f"{payload.name} stopped the memory twice while it was read: it is left out.")
        self._settled[payload.staged].set()

    def _give_up(self, item: OutboxItem, payload: IngestPayload, sentence: str) -> None:
        self._update(payload.staged, replace(self._jobs[payload.staged], phase=JobPhase.FAILED, detail=sentence))
        self._settled[payload.staged].set()
        if sentence != item.error:  # said once, however often it is tried
            self._emit(Notice(_about(payload.name, sentence), Severity.ERROR))

    async def _hear(self, payload: IngestPayload, job: IngestJob, event: object) -> IngestJob:
        match event:
            case IngestProgress(_, phase, done, total):
                return self._update(payload.staged, replace(job, phase=JobPhase(phase), done=done, total=total))
            case Ingested():
                if not event.left:
                    self._passwords.pop(payload.staged, None)
                await asyncio.to_thread(self._store.set_document, payload.staged, event.document)
                await asyncio.to_thread(self._leave_behind, event.replaced)
                for warning in event.warnings:
                    self._emit(Notice(_about(payload.name, warning), Severity.WARNING))
                return self._update(
                    payload.staged,
                    replace(
                        job,
                        phase=JobPhase.OCR if event.left else JobPhase.DONE,
                        done=(event.pages or event.left) - event.left if event.left else job.done,
                        total=event.pages or event.left if event.left else job.total,
                        document=event.document,
                        passages=event.passages,
                        detail=" ".join(event.warnings),
                        confidence=event.confidence,
                    ),
                )
            case _:
                return job

    def _leave_behind(self, replaced: Sequence[DocumentId]) -> None:
        """Remove the copies of what a changed file held before, unless a message still has it attached."""
        for document in replaced:
            if not self._store.is_attached(document):
                unstage_content(document, self._files)

    def _drop_refused(self, staged: str) -> None:
        """Remove the copy of a file that cannot be read, unless a message has it or its password may still come."""
        job = self._jobs[staged]
        if job.phase is JobPhase.FAILED and not job.needs_password and staged not in self._store.staged():
            unstage(staged, self._files)

    async def _sweep(self) -> None:
        """Remove the copies that nothing knows: those of refused files, and what a killed program left half done."""
        try:
            documents = {document.id for document in await self._host.documents()}
            if documents:  # else the memory may have been moved away, and its files are all that is left
                staged = await asyncio.to_thread(self._store.staged)
                wanted = documents | {Path(copy).parent.name for copy in staged}
                await asyncio.to_thread(sweep, self._files, wanted, time.time() - YOUNG_SECONDS)
        except (HostError, StoreError, OSError):
            return  # at the next start then


def _leading_messages(items: list[OutboxItem]) -> list[OutboxItem]:
    return list(takewhile(lambda item: item.kind is OutboxKind.REMEMBER, items))


def _about(name: str, sentence: str) -> str:
    """The sentence, with the file's name before it unless it names the file itself."""
    return sentence if name in sentence else f"{name}: {sentence}"
