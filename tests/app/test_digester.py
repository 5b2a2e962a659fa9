"""Summing up in the background: stopped at once by a question, gone on with after it, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.digester import Digester
from app.events import Event, MessageAdded, ModelPhase, ModelState, Part, SummingUp, TurnsOver, WindowChanged
from app.host import wire
from app.host.digests import KeepDigest, KeptDigest, Segment, SummariseRequest
from app.host.sampling import FinishReason
from app.host.stream import CallFailedError, ChildDiedError
from app.ids import ChatId, MessageId
from app.store.types import Message

CHAT = ChatId("c")
QUESTION = Message(MessageId("q"), CHAT, None, wire.Role.USER, "Why?", 1.0)


def finished(reason: FinishReason) -> wire.Finished:
    return wire.Finished(reason, 1, 2, 0.1, 0.1)


class Summary:
    """A summary whose text comes when the test lets it."""

    def __init__(self, host: ScriptedHost) -> None:
        self._host = host
        self._cancelled = asyncio.Event()

    async def __aenter__(self) -> Summary:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def cancel(self) -> None:
        self._cancelled.set()

    async def __aiter__(self) -> AsyncIterator[object]:
        self._host.begun.set()
        if self._host.error is not None:
            raise self._host.error
        yield wire.Delta("They talked ")
        waiting = {asyncio.ensure_future(e.wait()) for e in (self._host.may_go_on, self._cancelled)}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if self._cancelled.is_set():
            yield finished(FinishReason.CANCELLED)
            return
        yield wire.Delta("of lamps.")
        yield finished(self._host.reason)


class ScriptedHost:
    """A memory with so many segments to sum up, and an engine."""

    def __init__(self, segments: int) -> None:
        self.left = [Segment(CHAT, "Lamps", (MessageId(f"m{n}"),), "What?", 80) for n in range(segments)]
        self.kept: list[KeepDigest] = []
        self.visible: list[tuple[MessageId, ...]] = []
        self.asked = 0
        self.begun, self.may_go_on, self.rested = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.reason = FinishReason.STOP
        self.error: Exception | None = None

    async def next_segment(self, visible: tuple[MessageId, ...]) -> Segment | None:
        self.visible.append(visible)
        if not self.left:
            self.rested.set()
        return self.left[0] if self.left else None

    def summarise(self, _: SummariseRequest) -> Summary:
        self.asked += 1
        return Summary(self)

    async def keep_digest(self, request: KeepDigest) -> KeptDigest:
        self.kept.append(request)
        self.left.pop(0)
        return KeptDigest(request.summary, request.maker, "")


READY = wire.EngineReady("A model", "f", 1, 1, 1, 1, 1, "cpu", "float32", 0.1, 1, False)


@asynccontextmanager
async def running(host: ScriptedHost, told: Told) -> AsyncIterator[Digester]:
    digester = Digester(host, told.append)  # type: ignore[arg-type]
    digester.start()
    try:
        async with asyncio.timeout(30):
            yield digester
    finally:
        await digester.stop()


def up(digester: Digester) -> None:
    digester.hear(ModelState(Part.MODEL, ModelPhase.READY, "", engine=READY))
    digester.hear(ModelState(Part.MEMORY, ModelPhase.READY, ""))


class Told(list[Event]):
    """What was told, and whether the summary under way is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()

    def append(self, event: Event) -> None:
        super().append(event)
        if event == SummingUp(None):
            self.over.set()


async def test_all_there_is_is_summed_up_when_model_and_memory_are_up() -> None:
    host, told = ScriptedHost(3), Told()
    host.may_go_on.set()
    async with running(host, told) as digester:
        digester.hear(ModelState(Part.MODEL, ModelPhase.READY, "", engine=READY))
        await asyncio.sleep(0)
        assert host.visible == []
        digester.hear(ModelState(Part.MEMORY, ModelPhase.READY, ""))
        await host.rested.wait()
    assert [(k.summary, k.maker) for k in host.kept] == [("They talked of lamps.", "A model")] * 3
    assert told == [SummingUp("Lamps"), SummingUp(None)] * 3


async def test_a_question_stops_a_summary_at_once_and_its_end_begins_it_anew() -> None:
    host, told = ScriptedHost(1), Told()
    async with running(host, told) as digester:
        up(digester)
        await host.begun.wait()
        digester.hear(MessageAdded(CHAT, QUESTION))
        await told.over.wait()
        assert host.kept == []
        host.may_go_on.set()
        digester.hear(ModelState(Part.MEMORY, ModelPhase.READY, ""))  # whatever else happens: somebody asks
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert host.asked == 1
        digester.hear(TurnsOver(CHAT))
        await host.rested.wait()
    assert host.asked == 2
    assert [k.summary for k in host.kept] == ["They talked of lamps."]


async def test_what_is_in_a_window_is_told_to_the_memory() -> None:
    host = ScriptedHost(0)
    segments = (wire.WindowSegment(None, 9, 9), wire.WindowSegment(MessageId("q"), 3, 3))
    gone = wire.WindowSegment(MessageId("old"), 0, 5)
    window = wire.WindowView(CHAT, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "f", 1.0, (*segments, gone))
    async with running(host, Told()) as digester:
        digester.hear(WindowChanged(CHAT, window))
        up(digester)
        await host.rested.wait()
    assert host.visible[0] == (MessageId("q"),)


async def test_a_summary_that_goes_on_for_ever_or_cannot_be_made_leaves_the_extract() -> None:
    for reason, error in ((FinishReason.LENGTH, None), (FinishReason.LOOP, None), (None, "no room")):
        host = ScriptedHost(1)
        host.may_go_on.set()
        host.reason = reason or FinishReason.STOP
        host.error = CallFailedError(error, "EngineError") if error else None
        async with running(host, Told()) as digester:
            up(digester)
            await host.rested.wait()
        assert [k.summary for k in host.kept] == [""]


async def test_an_engine_that_dies_costs_nothing_but_time() -> None:
    host, told = ScriptedHost(1), Told()
    host.error = ChildDiedError("The engine stopped working.")
    async with running(host, told) as digester:
        up(digester)
        await told.over.wait()
        assert host.kept == []
        host.error = None
        host.may_go_on.set()
        digester.hear(TurnsOver(CHAT))
        await host.rested.wait()
    assert len(host.kept) == 1
