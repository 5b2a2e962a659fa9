"""What every command shares: a desk that is opened and closed, progress on stderr, one sentence for an error."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from app.desk import Desk
from app.events import Event, JobChanged, JobPhase, ModelPhase, ModelState, Notice, Severity
from app.paths import Paths
from app.settings import Settings


def say(text: str) -> None:
    """One line on stderr."""
    print(f"aios-chat: {text}", file=sys.stderr, flush=True)


def counted(count: int, noun: str) -> str:
    """ "1 passage", "12 passages"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def as_json(value: object) -> str:
    """A dataclass, or a list of them, as indented JSON."""

    def plain(item: object) -> object:
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            return dataclasses.asdict(item)
        raise TypeError(f"{type(item).__name__} is not JSON")

    return json.dumps(value, default=plain, ensure_ascii=False, indent=2)


class Progress:
    """Tells on stderr how far things are: live on a terminal, else only what went wrong."""

    def __init__(self, quiet: bool) -> None:
        self._live = sys.stderr.isatty() and not quiet
        self._open_line = False

    def __call__(self, event: Event) -> None:
        """Listen to the desk."""
        match event:
            case Notice(text, severity) if severity is not Severity.INFO:
                self.clear()
                say(text)
            case ModelState(_, phase, text, done, total) if self._live and phase is not ModelPhase.FAILED:
                share = f" {100 * done // total} %" if total else ""
                self._line("" if phase is ModelPhase.READY else f"{text}{share}")
            case JobChanged(job) if self._live and job.phase not in (JobPhase.DONE, JobPhase.FAILED):
                self._line(f"{job.name}: {job.phase.value} {job.done}/{job.total}" if job.total else job.name)

    def show(self, text: str) -> None:
        """Say on a terminal how far something is."""
        if self._live:
            self._line(text)

    def clear(self) -> None:
        """Remove the live line."""
        if self._open_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._open_line = False

    def _line(self, text: str) -> None:
        self.clear()
        if text:
            sys.stderr.write(text[:120])
            sys.stderr.flush()
            self._open_line = True


@asynccontextmanager
async def opened(settings: Settings, progress: Progress) -> AsyncIterator[Desk]:
    """An open desk with no models started; closed at the end, whatever happens."""
    desk = Desk(settings, Paths.default().create())
    desk.subscribe(progress)
    try:
        await desk.open()
        yield desk
    finally:
        progress.clear()
        await desk.close()


def run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a command's coroutine; its exit code. Ctrl+C raises KeyboardInterrupt after the desk has been closed."""
    gc.enable()
    return asyncio.run(work())
