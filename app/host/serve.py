"""The child's end: receive calls, answer them, die with the parent. No event loop.

`Channel` is the plain door, for a program with a loop of its own (the engine). `serve` stands on it, for a
program that only answers (the memory): plain functions by payload type, run on a few threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from app.host.frames import (
    CANCELLED_KIND,
    Call,
    CallId,
    Cancel,
    Event,
    Failure,
    FrameDecoder,
    FrameError,
    Push,
    Result,
    Stop,
    ToParent,
    encode,
)

_log = logging.getLogger(__name__)

READ_BYTES = 1 << 20


class CallCancelled(Exception):  # noqa: N818 - it is no error: the caller has lost interest
    """Raised inside a handler by `Context.check`."""


class Channel:
    """The child's end of the pipes. Every method may be called from any thread.

    A reader thread takes envelopes as they come, so that a cancel is seen while a call runs. When the pipe
    closes the parent is dead, and this process ends at once with everything it started.
    """

    def __init__(self, read_fd: int, write_fd: int, name: str, log_file: str) -> None:
        self.name = name
        self.log_file = log_file
        self._read_fd = read_fd
        self._write_fd = write_fd
        # A program started from here must not keep the pipe open beyond our death.
        os.set_inheritable(read_fd, False)
        os.set_inheritable(write_fd, False)
        self._inbox: queue.SimpleQueue[Call | Stop] = queue.SimpleQueue()
        self._open: set[CallId] = set()
        self._cancelled: set[CallId] = set()
        self._flags = threading.Lock()
        self._writing = threading.Lock()
        threading.Thread(target=self._read, name="channel", daemon=True).start()

    @classmethod
    def from_arguments(cls) -> Channel:
        """The channel named by the command line that ChildProcess made. Also sets up this process as a child:
        logging to the log file, death with the parent."""
        read_fd, write_fd, name, log_file = sys.argv[1:5]
        logging.basicConfig(
            stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        for own in ("app", "engine"):
            logging.getLogger(own).setLevel(logging.INFO)
        _die_with_parent()
        return cls(int(read_fd), int(write_fd), name, log_file)

    def receive(self, timeout: float | None = None) -> Call | Stop | None:
        """The next call, or Stop, or None after `timeout` seconds (0 polls, None waits for ever)."""
        try:
            return self._inbox.get(block=timeout != 0, timeout=timeout)
        except queue.Empty:
            return None

    def send(self, envelope: ToParent) -> None:
        """Write one envelope; blocks while the parent does not read. A Result or Failure ends its call."""
        if isinstance(envelope, Result | Failure):
            with self._flags:
                self._open.discard(envelope.id)
                self._cancelled.discard(envelope.id)
        frame = memoryview(encode(envelope))
        try:
            with self._writing:
                while frame:
                    frame = frame[os.write(self._write_fd, frame) :]
        except BrokenPipeError:
            _end_with_parent()

    def event(self, call: CallId, payload: object) -> None:
        """Send a part of a call's answer."""
        self.send(Event(call, payload))

    def push(self, payload: object) -> None:
        """Tell the parent something it did not ask for."""
        self.send(Push(payload))

    def cancelled(self, call: CallId) -> bool:
        """Whether the parent no longer wants this call answered (also once it has said stop)."""
        return call in self._cancelled

    def fail(self, call: CallId, error: BaseException, expected: tuple[type[Exception], ...] = ()) -> None:
        """End a call with an error: an expected one in its own words, any other logged, one sentence told."""
        if isinstance(error, CallCancelled):
            self.send(Failure(call, "The call was cancelled.", CANCELLED_KIND))
            return
        kind = type(error).__name__
        if isinstance(error, expected):
            self.send(Failure(call, str(error), kind))
            return
        _log.error("a call failed", exc_info=error)
        sentence = f"Something went wrong in the {self.name} ({kind}); the log is at {self.log_file}."
        self.send(Failure(call, sentence, kind))

    def _read(self) -> None:
        decoder = FrameDecoder()
        while data := os.read(self._read_fd, READ_BYTES):
            try:
                envelopes = decoder.feed(data)
            except FrameError:
                _log.exception("the parent wrote garbage to the pipe")
                break
            for envelope in envelopes:
                self._take(envelope)
        _end_with_parent()

    def _take(self, envelope: object) -> None:
        with self._flags:
            if isinstance(envelope, Call):
                self._open.add(envelope.id)
            elif isinstance(envelope, Cancel) and envelope.id in self._open:
                self._cancelled.add(envelope.id)
            elif isinstance(envelope, Stop):
                self._cancelled |= self._open
        if isinstance(envelope, Call | Stop):
            self._inbox.put(envelope)


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may do besides returning its result."""

    call: CallId
    channel: Channel

    def event(self, payload: object) -> None:
        """Send a part of the answer."""
        self.channel.event(self.call, payload)

    def push(self, payload: object) -> None:
        """Tell the parent something that belongs to no call."""
        self.channel.push(payload)

    def cancelled(self) -> bool:
        """Whether the answer is no longer wanted."""
        return self.channel.cancelled(self.call)

    def check(self) -> None:
        """Raise CallCancelled when the answer is no longer wanted; call it between steps of long work."""
        if self.cancelled():
            raise CallCancelled


Handler = Callable[[Any, Context], object]
"""Answers one type of payload: `(payload, context) -> result`."""


def serve(
    handlers: Mapping[type, Handler],
    *,
    background: Mapping[type, Handler] | None = None,
    expected: tuple[type[Exception], ...] = (),
    threads: int = 4,
    on_stop: Callable[[], None] | None = None,
    channel: Channel | None = None,
) -> None:
    """Answer calls until told to stop, then let what runs finish, call `on_stop` and return.

    `handlers` run on `threads` threads; `background` handlers one at a time on a thread of their own, in
    order, so that long work (reading a file) never keeps a short call (a search) waiting. An exception of a
    class in `expected` has a message that is a sentence for the person.
    """
    door = channel if channel is not None else Channel.from_arguments()
    slow = dict(background or {})
    with contextlib.ExitStack() as pools:
        quick_pool = pools.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="call"))
        slow_pool = pools.enter_context(ThreadPoolExecutor(1, thread_name_prefix="background"))
        while True:
            envelope = door.receive()
            if isinstance(envelope, Stop):
                break
            if envelope is None:
                continue
            kind = type(envelope.payload)
            pool: Executor = slow_pool if kind in slow else quick_pool
            pool.submit(_answer, door, envelope, slow.get(kind) or handlers.get(kind), expected)
    if on_stop is not None:
        on_stop()


def _answer(channel: Channel, call: Call, handler: Handler | None, expected: tuple[type[Exception], ...]) -> None:
    context = Context(call.id, channel)
    try:
        if handler is None:
            raise TypeError(f"nobody here answers a {type(call.payload).__name__}")
        context.check()
        result = Result(call.id, handler(call.payload, context))
    except BaseException as error:
        channel.fail(call.id, error, expected)
        return
    try:
        channel.send(result)
    except Exception as error:  # a result that cannot be pickled or is too long must still end its call
        channel.fail(call.id, error)


def _die_with_parent() -> None:
    """Have the kernel kill us when the parent is killed: it works even while a C call holds the interpreter.
    Elsewhere the closing pipe does it alone."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        _end_with_parent()


def _end_with_parent() -> None:
    # Our process group holds only what we started (Tesseract); none of it may outlive the program.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
