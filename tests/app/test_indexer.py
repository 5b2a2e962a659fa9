"""The outbox against a memory that fails in every way: a file's fate is told once and holds up nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.drop.stage import stage
from app.events import Event, JobChanged, JobPhase, Notice
from app.host.documents import DocumentInfo, Ingested, IngestProgress, IngestRequest, Refusal
from app.host.stream import CallFailedError, ChildDiedError
from app.ids import DocumentId
from app.indexer import Indexer
from app.store.store import IngestPayload, Store
from app.store.types import Attachment, OutboxKind


class Reading:
    """The stream of one file's reading: events, then an error or the end."""

    def __init__(self, events: list[object], error: Exception | None) -> None:
        self._events, self._error = events, error

    async def __aenter__(self) -> Reading:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def __aiter__(self) -> AsyncIterator[object]:
        for event in self._events:
            yield event
        if self._error is not None:
            raise self._error


class ScriptedMemory:
    """Reads a file as its script says; what has no script is read well."""

    def __init__(self) -> None:
        self.script: dict[str, list[Exception]] = {}
        self.reads: list[str] = []
        self.requests: list[IngestRequest] = []
        self.replaces: tuple[DocumentId, ...] = ()
        self.held: list[DocumentId] = []
        self.left: dict[str, int] = {}
        """Pages that are left of a file after its first part; one goes with each further part."""
        self.begun = True
        """Whether a reading that fails had begun."""

    async def documents(self) -> list[DocumentInfo]:
        return [DocumentInfo(held, "name", "/origin", "text", None, 1, 1.0) for held in self.held]

    def ingest(self, request: IngestRequest) -> Reading:
        self.reads.append(request.name)
        self.requests.append(request)
        errors = self.script.get(request.name, [])
        progress = IngestProgress(request.job, "read", 0, 3)
        if errors:
            return Reading([progress] if self.begun else [], errors.pop(0))
        left = self.left.get(request.name, 0)
        self.left[request.name] = left - 1
        done = Ingested(
            request.job,
            DocumentId(request.name),
            request.name,
            "text",
            9,
            1,
            False,
            (),
            replaced=self.replaces,
            left=max(0, left),
        )
        return Reading([progress, done], None)


def is_there(copy: Attachment) -> bool:
    """Whether the staged copy is on the disk."""
    return Path(copy.staged).exists()


class Bench:
    """An indexer on a real outbox."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder, self.memory, self.told = store, folder, ScriptedMemory(), list[Event]()
        self.indexer = Indexer(store, self.memory, self.told.append, folder / "files")  # type: ignore[arg-type]

    async def read(self, *names: str) -> dict[str, JobPhase]:
        """Put these files in, wait until nothing can be done any more; where each one ended."""
        for name in names:
            (self.folder / name).write_text(f"words of {name}")
            (self.folder / "files").mkdir(exist_ok=True)
            attachment = stage(self.folder / name, self.folder / "files").attachment
            await self.indexer.ingest(None, Attachment(name, attachment.origin, attachment.staged))
        self.indexer.start()
        async with asyncio.timeout(30):
            await self.indexer.drained()
        await self.indexer.stop()
        return {job.name: job.phase for job in self.indexer.jobs}

    @property
    def notices(self) -> list[str]:
        return [e.text for e in self.told if isinstance(e, Notice)]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("app.indexer.RETRY_SECONDS", 0)
    store = Store.open(tmp_path / "chats.db")
    yield Bench(store, tmp_path)
    store.close()


DIED = "The memory stopped working (killed); its log is at memory.log."


async def test_the_pages_that_are_left_are_read_after_what_else_waits(bench: Bench) -> None:
    bench.memory.left["scan.pdf"] = 2
    ended = await bench.read("scan.pdf", "a.txt", "b.txt")
    assert ended == {"scan.pdf": JobPhase.DONE, "a.txt": JobPhase.DONE, "b.txt": JobPhase.DONE}
    assert bench.memory.reads == ["scan.pdf", "a.txt", "b.txt", "scan.pdf", "scan.pdf"]
    assert bench.store.pending() == []
    told = [event.job for event in bench.told if isinstance(event, JobChanged) and event.job.name == "scan.pdf"]
    parts = [(job.done, job.total) for job in told if job.phase is JobPhase.OCR]
    assert parts == [(7, 9), (8, 9)]
    first = next(number for number, job in enumerate(told) if job.document is not None)
    assert JobPhase.WAITING not in {job.phase for job in told[first:]}


async def test_a_question_waits_for_the_first_part_only_and_a_restart_goes_on(bench: Bench) -> None:
    bench.memory.left["scan.pdf"] = 10**6
    (bench.folder / "scan.pdf").write_text("words")
    (bench.folder / "files").mkdir()
    attachment = stage(bench.folder / "scan.pdf", bench.folder / "files").attachment
    await bench.indexer.ingest(None, attachment)
    bench.indexer.start()
    async with asyncio.timeout(30):
        assert await bench.indexer.documents([attachment]) == (DocumentId("scan.pdf"),)
    await bench.indexer.stop()
    assert [item.kind for item in bench.store.pending()] == [OutboxKind.INGEST]
    bench.memory.left["scan.pdf"] = 1
    assert await bench.read() == {"scan.pdf": JobPhase.DONE}
    assert bench.store.pending() == []


async def test_a_file_that_takes_the_memory_down_twice_is_left_out_and_the_next_is_read(bench: Bench) -> None:
    bench.memory.script["bomb.txt"] = [ChildDiedError(DIED) for _ in range(9)]
    ended = await bench.read("bomb.txt", "good.txt")
    assert ended == {"bomb.txt": JobPhase.FAILED, "good.txt": JobPhase.DONE}
    assert bench.memory.reads.count("bomb.txt") == 2
    assert bench.notices == ["bomb.txt stopped the memory twice while it was read: it is left out."]
    bench.store.recover()
    assert bench.store.pending() == []


async def test_a_file_that_was_being_read_when_the_memory_died_once_is_read_again(bench: Bench) -> None:
    bench.memory.script["a.txt"] = [ChildDiedError(DIED)]
    assert await bench.read("a.txt", "b.txt") == {"a.txt": JobPhase.DONE, "b.txt": JobPhase.DONE}
    assert bench.notices == []


async def test_a_memory_that_is_down_is_no_files_fault(bench: Bench) -> None:
    bench.memory.begun = False
    bench.memory.script["a.txt"] = [ChildDiedError("The memory is not running.") for _ in range(4)]
    assert await bench.read("a.txt") == {"a.txt": JobPhase.DONE}
    assert bench.notices == []


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("a.txt is encrypted: remove its password.", "a.txt is encrypted: remove its password."),
        ("Tesseract is not installed: install it.", "a.txt: Tesseract is not installed: install it."),
    ],
)
@pytest.mark.parametrize("kind", ["IngestError", "NeedsPasswordError", "OcrError", "OperationalError"])
async def test_a_refusal_is_told_once_and_names_its_file_once(
    bench: Bench, sentence: str, told: str, kind: str
) -> None:
    bench.memory.script["a.txt"] = [CallFailedError(sentence, kind) for _ in range(9)]
    assert (await bench.read("a.txt", "b.txt")) == {"a.txt": JobPhase.FAILED, "b.txt": JobPhase.DONE}
    assert bench.notices == [told]


async def test_a_file_that_needs_a_password_is_read_when_it_comes(bench: Bench) -> None:
    bench.memory.script["a.txt"] = [CallFailedError("a.txt is encrypted and needs a password.", "NeedsPasswordError")]
    assert await bench.read("a.txt") == {"a.txt": JobPhase.FAILED}
    (job,) = bench.indexer.jobs
    assert job.needs_password
    await bench.indexer.unlock(job.id, "open sesame")
    assert b"sesame" not in b"".join(path.read_bytes() for path in bench.folder.rglob("*") if path.is_file())
    await bench.read()
    (job,) = bench.indexer.jobs
    assert (job.phase, job.needs_password) == (JobPhase.DONE, False)
    assert [request.password for request in bench.memory.requests] == ["", "open sesame"]
    assert "sesame" not in repr(bench.memory.requests)


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize(
    ("error", "kept"),
    [
        *((CallFailedError("a.txt cannot be read.", kind), kind == Refusal.PASSWORD) for kind in Refusal),
        (CallFailedError("Tesseract is not installed.", "OcrError"), True),
        (ChildDiedError(DIED), False),
    ],
)
async def test_a_refused_file_leaves_a_copy_only_where_somebody_may_need_it(
    bench: Bench, error: Exception, kept: bool, attached: bool
) -> None:
    bench.memory.script["a.txt"] = [error for _ in range(9)]
    (bench.folder / "a.txt").write_text("words of a.txt")
    (bench.folder / "files").mkdir()
    copy = stage(bench.folder / "a.txt", bench.folder / "files").attachment
    if attached:
        bench.store.add_user_message(bench.store.create_chat().id, "Read this.", attachments=[copy])
    assert await bench.read("a.txt") == {"a.txt": JobPhase.FAILED}
    assert is_there(copy) is (kept or attached)


@pytest.mark.parametrize("holds", [True, False])
async def test_at_start_copies_that_nothing_knows_are_removed(bench: Bench, holds: bool) -> None:
    """Unless they are young, or the memory holds nothing at all: then it may have been moved away."""
    files = bench.folder / "files"
    files.mkdir()
    copies = {}
    for name in ("orphan", "document", "attached", "waiting", "young"):
        (bench.folder / name).write_text(name)
        copies[name] = stage(bench.folder / name, files).attachment
    bench.memory.held = [DocumentId(Path(copies["document"].staged).parent.name)] if holds else []
    bench.store.add_user_message(bench.store.create_chat().id, "Read this.", attachments=[copies["attached"]])
    bench.store.enqueue_ingest(IngestPayload(copies["waiting"].staged, "waiting", "/waiting"))
    (files / ".incoming-abc").write_text("half of an orph")
    (files / "notes").mkdir()
    for place in files.iterdir():
        if place != Path(copies["young"].staged).parent:
            os.utime(place, (1.0, 1.0))
    await bench.read()
    left = {name for name, copy in copies.items() if is_there(copy)}
    gone = {"orphan"} if holds else set()
    assert left == copies.keys() - gone
    assert (files / ".incoming-abc").exists() is not holds
    assert (files / "notes").is_dir()


async def test_what_a_changed_file_held_before_leaves_no_copy(bench: Bench) -> None:
    await bench.read("a.txt")
    before = Path(bench.memory.requests[0].path)
    bench.memory.replaces = (DocumentId(before.parent.name),)
    assert await asyncio.to_thread(before.exists)
    await bench.read("b.txt")
    assert not await asyncio.to_thread(before.parent.exists)
