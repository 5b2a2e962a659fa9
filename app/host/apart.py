"""Has files read in a process of their own (`app.host.reader_child`), which may crash, hang or swell without harm to
the memory. Blocking; used by the memory's child, one file at a time."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from app.host.frames import Call, CallId, Event, Failure, FrameDecoder, FrameError, Result, ToParent, encode
from memory import types
from memory.ingest.extract import Extract, Job

SILENT_SECONDS = 100.0
"""Without a word for so long, the reader is killed. A page's OCR reports when it begins, and takes 2 to 10 s on two
free cores."""
IDLE_SECONDS = 30.0
"""Then the reader ends and gives its memory back; it starts anew in half a second."""
_LOOK_SECONDS = 0.2
_READ_BYTES = 1 << 20
_ENDINGS = {
    error.__name__: error
    for error in (
        types.IngestError,
        types.NeedsPasswordError,
        types.UnsupportedFileError,
        types.DamagedFileError,
        types.NoTextError,
    )
}


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One file to read, as it passes to the reader."""

    path: Path
    name: str
    ocr_languages: str
    password: str
    pages: tuple[int, ...]
    thumbnail: int


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    to: int
    out: int


class ApartReader:
    """A reader of files in another process: `reader(job)` is what `read_file(job)` is in this one."""

    def __init__(
        self,
        silent_seconds: float = SILENT_SECONDS,
        module: str = "app.host.reader_child",
        scratch: Path | None = None,
    ) -> None:
        """`scratch` is a folder of the reader's own for page pictures and unpacked parts, removed with it; None: the
        system's folder for temporary files."""
        self._silent = silent_seconds
        self._scratch = scratch
        self._module = module
        self._child: _Child | None = None
        self._calls = 0
        self._busy = threading.Lock()
        self._idle: threading.Timer | None = None

    def __call__(self, job: Job) -> Extract:
        """Read one file. Raises IngestError, also where the reader died of the file or had to be killed."""
        with self._busy:
            if self._idle is not None:
                self._idle.cancel()
            try:
                return self._read(job)
            except BaseException as error:
                if not isinstance(error, types.IngestError) or isinstance(error, types.IngestCancelledError):
                    self._end()
                raise
            finally:
                self._idle = threading.Timer(IDLE_SECONDS, self.close)
                self._idle.daemon = True
                self._idle.start()

    def close(self) -> None:
        """End the process, if one runs and is not reading, and remove what one that was killed left behind; the next
        file starts another."""
        if self._busy.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._busy.release()

    def _read(self, job: Job) -> Extract:
        child = self._child if self._child is not None and self._child.process.poll() is None else self._start()
        self._calls += 1
        call = CallId(self._calls)
        decoder = FrameDecoder()
        heard = time.monotonic()
        try:
            request = ReadRequest(job.path, job.name, job.ocr_languages, job.password, job.pages, job.thumbnail)
            _write(child.to, encode(Call(call, request)))
            while True:
                ready, _, _ = select.select([child.out], [], [], _LOOK_SECONDS)
                data = os.read(child.out, _READ_BYTES) if ready else b""
                if ready and not data:
                    raise self._died(job)
                for envelope in decoder.feed(data):
                    heard = time.monotonic()
                    if (extract := _taken(envelope, call, job)) is not None:
                        return extract
                if job.cancelled():
                    raise types.IngestCancelledError(f"Stopped reading {job.name}: nothing of it was kept.")
                if time.monotonic() - heard > self._silent:
                    raise self._hung(job)
        except (OSError, FrameError) as error:
            raise self._died(job) from error

    def _died(self, job: Job) -> types.DamagedFileError:
        self._end()
        return types.DamagedFileError(
            f"{job.name} stopped the program that reads files, or took more memory than a file may: it is left out."
        )

    def _hung(self, job: Job) -> types.DamagedFileError:
        self._end()
        return types.DamagedFileError(
            f"{job.name} was given up: nothing came of reading it for {self._silent:.0f} seconds."
        )

    def _start(self) -> _Child:
        self._end()
        child_in, to = os.pipe()
        out, child_out = os.pipe()
        try:
            if self._scratch is not None:
                self._scratch.mkdir(mode=0o700, exist_ok=True)
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    self._module,
                    str(child_in),
                    str(child_out),
                    "reader",
                    "stderr",
                ],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _is_open(sys.stderr) else subprocess.DEVNULL,
                pass_fds=(child_in, child_out),
                start_new_session=True,
                env=None if self._scratch is None else {**os.environ, "TMPDIR": str(self._scratch)},
            )
        except OSError as error:
            os.close(to)
            os.close(out)
            raise types.RecallError(f"The reader of files cannot be started ({error.strerror}).") from error
        finally:
            os.close(child_in)
            os.close(child_out)
        self._child = _Child(process, to, out)
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            # It leads its own group: a Tesseract that it started goes with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait()
            os.close(child.to)
            os.close(child.out)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _is_open(stream: object) -> bool:
    try:
        return stream is not None and stream.fileno() >= 0  # type: ignore[attr-defined]
    except (OSError, ValueError):
        return False


def _write(descriptor: int, frame: bytes) -> None:
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _taken(envelope: object, call: CallId, job: Job) -> Extract | None:
    """What an envelope of the reader brings: the text, progress, or the end of it."""
    if not isinstance(envelope, ToParent) or getattr(envelope, "id", None) != call:
        return None
    match envelope:
        case Result(_, Extract() as extract):
            return extract
        case Event(_, types.Progress() as progress):
            job.on_progress(progress)
        case Failure(_, sentence, kind) if kind in _ENDINGS:
            raise _ENDINGS[kind](sentence)
        case Failure(_, sentence, _):
            raise types.DamagedFileError(f"{job.name} could not be read. {sentence}")
    return None
