"""Has the model sum up what left the windows, while nobody asks anything.

Nothing is kept here: the memory knows what has no digest yet, so what a crash, a stop or a question breaks off is begun
again later.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from app.events import Event, Listener, MessageAdded, ModelPhase, ModelState, Part, SummingUp, TurnsOver, WindowChanged
from app.host import wire
from app.host.digests import KeepDigest, KeptDigest, Segment, SummariseRequest
from app.host.host import Host
from app.host.sampling import FinishReason
from app.host.stream import CallFailedError, HostError, Stream
from app.ids import ChatId, MessageId


class Digester:
    """Listens to the desk: a question stops the summary under way at once, and the end of its turn lets it go on."""

    def __init__(self, host: Host, emit: Listener) -> None:
        self._host, self._emit = host, emit
        self._asking: set[ChatId] = set()
        self._visible: dict[ChatId, tuple[MessageId, ...]] = {}
        self._ready: set[Part] = set()
        self._model = ""
        self._wanted = asyncio.Event()
        self._stream: Stream | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, as soon as the model and the memory are up."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """End; what is under way is begun again in another run."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def hear(self, event: Event) -> None:
        """What the desk tells."""
        match event:
            case MessageAdded(chat, _):
                self._asking.add(chat)
                if self._stream is not None:
                    self._stream.cancel()
            case TurnsOver(chat):
                self._asking.discard(chat)
                self._wanted.set()
            case WindowChanged(chat, window):
                shown = (s.message for s in window.segments if s.visible_tokens)
                self._visible[chat] = tuple(message for message in shown if message is not None)
            case ModelState(part, phase, _, _, _, engine):
                (self._ready.add if phase is ModelPhase.READY else self._ready.discard)(part)
                self._model = engine.model_name if engine is not None else self._model
                self._wanted.set()

    async def next(self) -> KeptDigest | None:
        """Sum up the next turns; None when there are none, when a question came first, or when they were forgotten
        meanwhile. Raises HostError."""
        visible = tuple(message for chat in self._visible.values() for message in chat)
        segment = await self._host.next_segment(visible)
        if segment is None or self._asking:
            return None
        self._emit(SummingUp(segment.title))
        try:
            summary = await self._summary(segment)
            if summary is None:
                return None
            return await self._host.keep_digest(KeepDigest(segment.chat, segment.messages, summary, self._model))
        finally:
            self._emit(SummingUp(None))

    async def _work(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            # Whatever fails is tried again after the next turn: the start-up tells of a child that died.
            with suppress(HostError):
                while self._ready == set(Part) and not self._asking and await self.next() is not None:
                    pass

    async def _summary(self, segment: Segment) -> str | None:
        """What the model says; "" where it cannot or goes on for too long, None when a question came first."""
        text = ""
        try:
            async with self._host.summarise(SummariseRequest(segment.question, segment.max_tokens)) as stream:
                self._stream = stream
                async for event in stream:
                    match event:
                        case wire.Delta(piece):
                            text += piece
                        case wire.Finished(FinishReason.CANCELLED):
                            return None
                        case wire.Finished(reason) if reason is not FinishReason.STOP:
                            return ""
        except CallFailedError:
            return ""  # these turns do not fit its window, or the chats need all the room: the extract will do
        finally:
            self._stream = None
        return None if self._asking else text.strip()
