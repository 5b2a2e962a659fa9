"""The UI process's end of a child: start it, call it, stream from it, notice its death, end it.

Standard library only; everything runs on the event loop's thread and nothing blocks it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.host.frames import Call, CallId, Push, Stop, ToChild
from app.host.pipes import Pipes, open_pipes
from app.host.stream import CallFailedError, ChildDiedError, HostError, Stream

__all__ = ["CallFailedError", "ChildDiedError", "ChildExit", "ChildProcess", "HostError", "Stream"]

LOG_BYTES = 4 << 20
"""A log longer than this is set aside at the next start; one older log is kept."""

CHILD_ENVIRONMENT = {
    # Threads that wait for work must sleep, not spin: the screen shares the cores with them.
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
    "TOKENIZERS_PARALLELISM": "false",
    # A child never uses the network; fetching models is the UI process's doing, and visible.
    "HF_HUB_OFFLINE": "1",
    "ANONYMIZED_TELEMETRY": "False",
    # Its output is a log: lines must be there when it crashes, and say where.
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",
}


@dataclass(frozen=True, slots=True)
class ChildExit:
    """A child ended. `code` is its exit code, negative for a signal; `asked` when we stopped it."""

    name: str
    code: int
    asked: bool
    sentence: str


class ChildProcess:
    """One child process, `python -m module`, spoken to over two private pipes.

    `name` is what people read ("memory", "engine"). The child's stdout and stderr go to `log_file`. It has
    its own session, so Ctrl+C in the terminal never reaches it; it dies when this process does, however that
    ends. `on_push` gets what the child says unasked; `on_exit` is called once for each end of the child.
    """

    def __init__(
        self,
        name: str,
        module: str,
        log_file: Path,
        *,
        on_push: Callable[[Any], None] | None = None,
        on_exit: Callable[[ChildExit], None] | None = None,
    ) -> None:
        self.name = name
        self.module = module
        self.log_file = log_file
        self.on_push = on_push
        self.on_exit = on_exit
        self._ids = itertools.count(1)
        # Weak: a stream that its caller lets go of is closed by its __del__.
        self._streams: weakref.WeakValueDictionary[CallId, Stream] = weakref.WeakValueDictionary()
        self._process: asyncio.subprocess.Process | None = None
        self._pipes: Pipes | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False
        self._options: object = None

    @property
    def alive(self) -> bool:
        """Whether the child runs and can be called."""
        return self._process is not None and self._process.returncode is None and not self._stopping

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self, options: object) -> Any:
        """Start the child, hand it `options` as its first call and return its answer (the ready payload).

        Raises HostError with one sentence when it cannot be started, fails to get ready or dies on the way;
        it is then gone.
        """
        if self._process is not None:
            raise HostError(f"The {self.name} runs already.")
        self._options = options
        self._stopping = False
        await self._spawn()
        try:
            return await self.call(options)
        except BaseException:
            await self.stop(timeout=0)
            raise

    async def restart(self, timeout: float = 5.0) -> Any:
        """Stop the child if it runs, start it again with the options it had, return the ready payload."""
        await self.stop(timeout)
        return await self.start(self._options)

    async def call(self, payload: object) -> Any:
        """Send one call and return its result; events are dropped. Cancelling the caller cancels the call.

        Raises CallFailedError (the child's own sentence) or ChildDiedError.
        """
        async with self.stream(payload) as stream:
            await stream.sent()
            return await stream.result()

    def stream(self, payload: object) -> Stream:
        """Send one call and iterate over its events; a result other than None comes last.

        Closing the stream, or cancelling the task that waits for it, cancels the call in the child. Raises
        ChildDiedError at once when the child does not run.
        """
        if not self.alive or self._pipes is None:
            raise ChildDiedError(f"The {self.name} is not running; its log is at {self.log_file}.")
        call = CallId(next(self._ids))
        stream = Stream(call, self._send, self._forget, self._pipes.drained)
        self._send(Call(call, payload))
        self._streams[call] = stream
        return stream

    async def stop(self, timeout: float = 5.0) -> None:
        """Ask the child to finish and exit; after `timeout` seconds its whole process group is killed.

        Calls still pending end with ChildDiedError. Does nothing when no child runs.
        """
        process, watch = self._process, self._watch
        if process is None or watch is None:
            return
        asked_before, self._stopping = self._stopping, True
        if not asked_before and self._pipes is not None:
            self._pipes.write(Stop())
        try:
            await asyncio.wait({watch}, timeout=timeout)
        finally:
            if process.returncode is None:
                self._kill(process)
        await asyncio.shield(watch)

    async def _spawn(self) -> None:
        try:
            log = await asyncio.to_thread(_open_log, self.log_file)
        except OSError as error:
            raise HostError(
                f"The {self.name} cannot be started: its log {self.log_file} cannot be written ({error.strerror})."
            ) from error
        with log:
            async with open_pipes(self._receive) as (pipes, child_read, child_write):
                # -P: a folder the person happens to stand in must not shadow our modules or the library's.
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    self.module,
                    str(child_read),
                    str(child_write),
                    self.name,
                    str(self.log_file),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(child_read, child_write),
                    start_new_session=True,
                    env={**os.environ, **CHILD_ENVIRONMENT},
                )
        self._pipes = pipes
        self._watch = asyncio.create_task(self._watch_exit(self._process, pipes), name=f"watch {self.name}")

    async def _watch_exit(self, process: asyncio.subprocess.Process, pipes: Pipes) -> None:
        exited = asyncio.ensure_future(process.wait())
        closed = asyncio.ensure_future(pipes.closed.wait())
        await asyncio.wait({exited, closed}, return_when=asyncio.FIRST_COMPLETED)
        # What it said last is still in the pipe when it exits; and a child that closed its pipe but lives on
        # is of no use any more. A second of grace for the one, five for the other.
        await asyncio.wait({closed}, timeout=1.0 if exited.done() else 0)
        if not exited.done():
            await asyncio.wait({exited}, timeout=5.0)
        if not exited.done():
            self._kill(process)
        code = await exited
        closed.cancel()
        pipes.close()
        self._ended(code)

    def _ended(self, code: int) -> None:
        ended = ChildExit(self.name, code, self._stopping, self._sentence(code))
        self._process = self._pipes = self._watch = None
        for stream in list(self._streams.values()):
            stream.fail(ChildDiedError(ended.sentence))
        self._streams.clear()
        if self.on_exit is not None:
            asyncio.get_running_loop().call_soon(self.on_exit, ended)

    def _sentence(self, code: int) -> str:
        if self._stopping:
            return f"The {self.name} was stopped."
        if code >= 0:
            how = f"exit code {code}"
        elif -code == signal.SIGKILL:
            how = "killed, perhaps by the system for lack of memory"
        else:
            how = f"signal {_signal_name(-code)}"
        return f"The {self.name} stopped working ({how}); its log is at {self.log_file}."

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        # The child leads its own group, so a program it started (Tesseract) goes with it.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _send(self, envelope: ToChild) -> None:
        if self._pipes is not None:
            self._pipes.write(envelope)

    def _forget(self, call: CallId) -> None:
        self._streams.pop(call, None)

    def _receive(self, envelope: object) -> None:
        if isinstance(envelope, Push):
            if self.on_push is not None:
                # Not from here: an error in a listener must not break the pipe.
                asyncio.get_running_loop().call_soon(self.on_push, envelope.payload)
            return
        # Answers to a call that was closed meanwhile are on their way when it closes; they are dropped here.
        stream = self._streams.get(getattr(envelope, "id", CallId(0)))
        if stream is not None:
            stream.deliver(envelope)


def _open_log(path: Path) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(path.suffix + ".old"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
