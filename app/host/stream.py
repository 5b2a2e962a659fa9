"""One call under way, as its caller sees it, and the errors it can end with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from app.errors import PersonError
from app.host.frames import CANCELLED_KIND, CallId, Cancel, Event, Failure, Result, ToChild


class HostError(PersonError):
    """One sentence for the person: what happened to a child or its call, and where its log is."""


class CallFailedError(HostError):
    """The child answered with a failure. `kind` is the class name of the exception there."""

    def __init__(self, sentence: str, kind: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class ChildDiedError(HostError):
    """The child ended, or was not running, so that the call has no answer."""


class Stream:
    """The answer to one call: an async iterator over its events, then its result unless that is None.

    What has not been read yet waits here without limit: holding back one call's events would hold back the
    pipe, and with it every other call of the same child.
    """

    def __init__(
        self,
        call: CallId,
        send: Callable[[ToChild], None],
        forget: Callable[[CallId], None],
        drained: Callable[[], Awaitable[None]],
    ) -> None:
        self.id = call
        self._send = send
        self._forget = forget
        self._drained = drained
        self._items: deque[Any] = deque()
        self._end: Result | Failure | HostError | None = None
        self._read_end = False
        self._cancelled = False
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        while not self._items:
            if self._read_end:
                raise StopAsyncIteration
            if self._end is not None:
                result = self._finish()
                if result is None:
                    raise StopAsyncIteration
                return result
            await self._wait()
        return self._items.popleft()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # `async for ... break` leaves a stream without closing it; the child should not go on for nobody.
        self._close()

    async def sent(self) -> None:
        """Wait until the call itself has gone down the pipe (matters for payloads of megabytes)."""
        await self._drained()

    async def result(self) -> Any:
        """Skip the events and return the result. Raises as iterating does."""
        while self._end is None:
            self._items.clear()
            await self._wait()
        self._items.clear()
        return self._finish()

    def cancel(self) -> None:
        """Ask the child to stop and go on reading: what it says last still arrives (an answer's end)."""
        if self._end is None and not self._cancelled:
            self._cancelled = True
            self._send(Cancel(self.id))

    async def aclose(self) -> None:
        """Drop the call: the child is told unless it is done, and nothing more arrives here."""
        self._close()

    def deliver(self, envelope: object) -> None:
        """Take what the child sent for this call (the pipe's side)."""
        if self._read_end:
            return
        if isinstance(envelope, Event):
            self._items.append(envelope.payload)
        elif isinstance(envelope, Result | Failure):
            self._end = envelope
            self._forget(self.id)
        self._wake()

    def fail(self, error: HostError) -> None:
        """End with `error` once what has arrived is read, unless the call had ended."""
        if self._end is None:
            self._end = error
            self._wake()

    def _finish(self) -> Any:
        end, self._read_end = self._end, True
        if isinstance(end, HostError):
            raise end
        if isinstance(end, Failure):
            if self._cancelled and end.kind == CANCELLED_KIND:
                return None
            raise CallFailedError(end.sentence, end.kind)
        return end.payload if isinstance(end, Result) else None

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("two tasks wait for one stream")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self._close()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _close(self) -> None:
        if self._read_end:
            return
        self.cancel()
        self._items.clear()
        self._read_end = True
        self._forget(self.id)
