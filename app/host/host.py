"""The two children as the desk sees them: typed calls, and a restart when one dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from app.host import digests, inspection, wire
from app.host.documents import DocumentInfo, ForgetPath, IngestRequest, ListDocuments
from app.host.process import ChildExit, ChildProcess
from app.host.stream import ChildDiedError, HostError, Stream
from app.host.web import KeepWeb
from app.ids import ChatId, DocumentId, MessageId

MOST_RESTARTS = 3
"""A child that dies more often than this in one run is left down: something is wrong that a restart won't mend."""

OnLoad = Callable[[wire.LoadPlan | wire.LoadProgress], None]
OnExit = Callable[[ChildExit], None]


class Host:
    """Runs the engine and the memory, each in a process of its own, so that neither can stall or take down the
    screen. A child that ends unexpectedly is started again with the options it had: `on_end` hears of the end and
    whether the child will be back, `on_back` what it says when it is, `on_lost` why it will not."""

    def __init__(
        self,
        logs: Path,
        on_end: Callable[[ChildExit, bool], None],
        on_back: Callable[[str, object], None],
        on_lost: Callable[[str, str], None],
    ) -> None:
        self._on_end, self._on_back, self._on_lost = on_end, on_back, on_lost
        self._deaths: dict[str, int] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        self._was_ready: set[str] = set()
        self.engine = self._child("engine", "app.host.engine_child", logs)
        self.memory = self._child("memory", "app.host.memory_child", logs)

    def _child(self, name: str, module: str, logs: Path) -> ChildProcess:
        return ChildProcess(name, module, logs / f"{name}.log", on_exit=self._exited)

    def _exited(self, end: ChildExit) -> None:
        child = self.engine if end.name == self.engine.name else self.memory
        # One that dies while it loads for the first time is reported by whoever started it.
        if end.asked or end.name not in self._was_ready:
            return
        self._deaths[end.name] = self._deaths.get(end.name, 0) + 1
        again = self._deaths[end.name] <= MOST_RESTARTS
        self._on_end(end, again)
        if again:
            task = asyncio.get_running_loop().create_task(self._restart(child))
            self._restarts.add(task)
            task.add_done_callback(self._restarts.discard)

    async def _restart(self, child: ChildProcess) -> None:
        try:
            ready = await child.restart()
        except ChildDiedError:
            return  # on_exit reports that end as well, and tries again
        except HostError as error:
            self._on_lost(child.name, str(error))
        else:
            self._on_back(child.name, ready)

    async def start_engine(self, options: wire.EngineOptions, on_load: OnLoad) -> wire.EngineReady:
        """Load the model. Raises HostError with the engine's own sentence."""
        self.engine.on_push = on_load
        ready: wire.EngineReady = await self.engine.start(options)
        self._was_ready.add(self.engine.name)
        return ready

    async def start_memory(self, options: wire.MemoryOptions, on_load: OnLoad) -> wire.MemoryReady:
        """Open the memory. Raises HostError with the memory's own sentence."""
        self.memory.on_push = on_load
        ready: wire.MemoryReady = await self.memory.start(options)
        self._was_ready.add(self.memory.name)
        return ready

    def generate(self, request: wire.GenerateRequest) -> Stream:
        """Answer; yields EngineEvents, Finished last. `Stream.cancel` stops it and lets the end arrive."""
        return self.engine.stream(request)

    def read(self, request: wire.ReadRequest) -> Stream:
        """Read a chat in the background, what is pinned to its window having changed; see ReadRequest. Fails with the
        engine's QuotaError when too much is pinned."""
        return self.engine.stream(request)

    async def prepare(self, request: wire.PrepareRequest) -> wire.Prepared:
        """Have the engine read a chat up to its question, and tell what will still be in the window then."""
        prepared: wire.Prepared = await self.engine.call(request)
        return prepared

    async def window(self, chat: ChatId) -> wire.WindowView | None:
        """What the model sees of a chat; None when it holds no session."""
        view: wire.WindowView | None = await self.engine.call(wire.WindowRequest(chat))
        return view

    async def recall(self, request: wire.RecallRequest) -> wire.Recalled:
        """Passages for the next prompt."""
        recalled: wire.Recalled = await self.memory.call(request)
        return recalled

    async def cite(self, request: wire.CiteRequest) -> wire.Cited:
        """Which passages an answer rests on."""
        cited: wire.Cited = await self.memory.call(request)
        return cited

    async def search(self, request: wire.SearchRequest) -> wire.SearchResult:
        """Search everything stored."""
        result: wire.SearchResult = await self.memory.call(request)
        return result

    async def forget_path(self, origin: str) -> tuple[DocumentId, ...]:
        """A file is gone from its path; the documents that stood nowhere else and are forgotten."""
        gone: tuple[DocumentId, ...] = await self.memory.call(ForgetPath(origin))
        return gone

    async def documents(self) -> Sequence[DocumentInfo]:
        """Every ingested document."""
        rows: tuple[DocumentInfo, ...] = await self.memory.call(ListDocuments())
        return rows

    async def next_segment(self, visible: Sequence[MessageId]) -> digests.Segment | None:
        """Turns that the memory wants summed up next; None when there are none."""
        segment: digests.Segment | None = await self.memory.call(digests.NextSegment(tuple(visible)))
        return segment

    def summarise(self, request: digests.SummariseRequest) -> Stream:
        """Have the engine sum up a talk in the background; yields Delta, Finished last."""
        return self.engine.stream(request)

    async def keep_digest(self, request: digests.KeepDigest) -> digests.KeptDigest | None:
        """Store a digest; None when what it sums up was forgotten meanwhile."""
        kept: digests.KeptDigest | None = await self.memory.call(request)
        return kept

    async def keep_web(self, request: KeepWeb) -> tuple[DocumentId, ...]:
        """Store what a web search found; the ids of the pages, in order."""
        kept: tuple[DocumentId, ...] = await self.memory.call(request)
        return kept

    async def sources(self) -> Sequence[inspection.SourceInfo]:
        """Everything the memory holds, by source."""
        rows: tuple[inspection.SourceInfo, ...] = await self.memory.call(inspection.ListSources())
        return rows

    def passages(self) -> Stream:
        """Every passage, as tuples of some; how many there were comes last."""
        return self.memory.stream(inspection.ListPassages())

    async def measure_memory(self) -> inspection.MemorySize:
        """How much the memory holds, once everything is indexed."""
        size: inspection.MemorySize = await self.memory.call(inspection.MeasureMemory())
        return size

    async def why(self, request: inspection.WhyRequest) -> inspection.Why:
        """What recall does for a question, and how it comes to it."""
        why: inspection.Why = await self.memory.call(request)
        return why

    def rebuild(self) -> Stream:
        """Make the memory's indexes anew; yields LoadProgress, the number of passages last."""
        return self.memory.stream(inspection.Rebuild())

    def ingest(self, request: IngestRequest) -> Stream:
        """Read a file; yields IngestProgress, Ingested last."""
        return self.memory.stream(request)

    async def remember(self, request: wire.RememberRequest) -> int:
        """Store messages; the number of new passages."""
        new: int = await self.memory.call(request)
        return new

    async def forget(self, request: wire.ForgetRequest) -> None:
        """Remove a source."""
        await self.memory.call(request)

    async def close_session(self, chat: ChatId) -> None:
        """Give a chat's pages back."""
        await self.engine.call(wire.CloseSession(chat))

    async def stop(self) -> None:
        """End both children and any restart under way."""
        for task in list(self._restarts):
            task.cancel()
        await asyncio.gather(self.engine.stop(), self.memory.stop())
