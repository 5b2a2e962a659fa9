"""The two pipes to a child as the event loop sees them: frames out with backpressure, envelopes in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable

from app.host.frames import Envelope, FrameDecoder, FrameError, ToChild, encode

_log = logging.getLogger(__name__)


class _Reader(asyncio.Protocol):
    """Cuts what arrives into envelopes; sets `closed` at end of file or on garbage."""

    def __init__(self, receive: Callable[[Envelope], None], closed: asyncio.Event) -> None:
        self._receive = receive
        self._closed = closed
        self._decoder = FrameDecoder()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            envelopes = self._decoder.feed(data)
        except FrameError as error:
            _log.error("the child wrote garbage to its pipe: %s", error)
            if self._transport is not None:
                self._transport.close()
            return
        for envelope in envelopes:
            self._receive(envelope)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()


class _Writer(asyncio.BaseProtocol):
    """Knows whether the pipe takes more."""

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        # Whoever waits to write learns of the child's end from its stream, not from here.
        self.writable.set()


class Pipes:
    """Both pipes of one child. `closed` is set when the child's end of ours is gone."""

    def __init__(self, closed: asyncio.Event) -> None:
        self.closed = closed
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None
        self._writer = _Writer()

    async def connect(self, read_fd: int, write_fd: int, receive: Callable[[Envelope], None]) -> None:
        """Hand both descriptors to the loop; from here on they are closed by `close`."""
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as undo:
            reading = undo.enter_context(open(read_fd, "rb", buffering=0))  # noqa: ASYNC230 - a pipe, no disk
            writing = undo.enter_context(open(write_fd, "wb", buffering=0))  # noqa: ASYNC230
            self._reading, _ = await loop.connect_read_pipe(lambda: _Reader(receive, self.closed), reading)
            self._writing, _ = await loop.connect_write_pipe(lambda: self._writer, writing)
            undo.pop_all()

    def write(self, envelope: ToChild) -> None:
        """Queue one frame in order; await `drained` after a large one. Silent when the child is gone."""
        frame = encode(envelope)
        if self._writing is not None and not self._writing.is_closing():
            self._writing.write(frame)

    async def drained(self) -> None:
        """Wait until the child has taken most of what was written."""
        await self._writer.writable.wait()

    def close(self) -> None:
        """Close both pipes, dropping what was not yet written."""
        if self._reading is not None:
            self._reading.close()
        if self._writing is not None and not self._writing.is_closing():
            self._writing.abort()


@contextlib.asynccontextmanager
async def open_pipes(receive: Callable[[Envelope], None]) -> AsyncIterator[tuple[Pipes, int, int]]:
    """Make both pipes; yields them with the child's two descriptors, which are ours only inside the block.

    When the block raises (the child could not be started), everything is closed.
    """
    child_read, our_write = os.pipe()
    our_read, child_write = os.pipe()
    pipes = Pipes(asyncio.Event())
    try:
        await pipes.connect(our_read, our_write, receive)
        yield pipes, child_read, child_write
    except BaseException:
        pipes.close()
        raise
    finally:
        os.close(child_read)
        os.close(child_write)
