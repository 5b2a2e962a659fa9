"""`aios-chat ingest`: files, folders and web pages into the memory; and folders watched."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from app.commands.session import Progress, as_json, counted, opened, say
from app.desk import Desk
from app.drop.fetch import Url, as_url
from app.drop.folder import files_of, is_meant
from app.events import IngestJob, JobPhase
from app.ports import DeskError
from app.settings import Settings

_LOOK_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Ingest:
    """What is asked: `sources` as they were typed."""

    sources: tuple[str, ...]
    password: str = ""
    watch: bool = False
    forget_gone: bool = False
    json: bool = False
    quiet: bool = False


async def ingest(settings: Settings, request: Ingest) -> int:
    """Read files, the files of folders, and web pages. A bad one costs one sentence and an exit code of 1; the others
    are read all the same. With `watch` it goes on until it is interrupted."""
    files, folders = await asyncio.to_thread(_sorted, request.sources)
    if request.watch and not folders:
        raise DeskError("--watch needs a folder to watch: name one.")
    async with (
        opened(settings, Progress(request.quiet or request.json)) as desk,
        aclosing(_changes(folders)) as changes,
    ):
        await desk.own()
        if request.watch:
            await anext(changes)  # from here on nothing that changes is missed, also while the folders are read
        desk.start_memory()
        work = _Work(desk, request)
        await work.read(files)
        for folder in folders:
            await work.read(await asyncio.to_thread(list, files_of(folder)))
        await desk.memory_up()
        await work.finish()
        for folder in folders:
            await work.missing(folder)
        if request.json:
            print(as_json([asdict(job) for job in desk.jobs]))
        if request.watch:
            await work.watch(folders, changes)
    return 1 if work.problems else 0


async def _changes(folders: list[Path]) -> AsyncGenerator[set[tuple[bool, Path]], None]:
    """Paths that changed and whether they are gone, collected since the last time; once a second, maybe none."""
    from watchfiles import Change, awatch

    async with aclosing(awatch(*folders, yield_on_timeout=True, rust_timeout=_LOOK_MILLISECONDS)) as watched:
        async for changes in watched:
            yield {(kind is Change.deleted, Path(name)) for kind, name in changes}


def _sorted(typed: tuple[str, ...]) -> tuple[list[Path | Url], list[Path]]:
    """The files and pages, and the folders, of what was typed."""
    sources = [as_url(text) or Path(text).expanduser() for text in typed]
    folders = [source for source in sources if isinstance(source, Path) and source.is_dir()]
    return [source for source in sources if source not in folders], [folder.absolute() for folder in folders]


class _Work:
    """One run of the command."""

    def __init__(self, desk: Desk, request: Ingest) -> None:
        self._desk, self._request = desk, request
        self._shown: set[str] = set()
        self.problems = 0

    async def read(self, sources: Iterable[Path | Url]) -> None:
        """Put these into the memory, one after the other."""
        for source in sources:
            try:
                await self._desk.files.ingest(source, password=self._request.password)
            except DeskError as error:
                self.problems += 1
                say(str(error))

    async def finish(self) -> None:
        """Wait until everything is indexed, ask for passwords, and say what became of it."""
        await self._desk.indexed()
        if sys.stdin.isatty() and not self._request.json and not self._request.password:
            await self._ask_passwords()
        for job in self._desk.jobs:
            if job.id in self._shown and job.phase is not JobPhase.DONE:
                continue
            self._say(job)

    async def _ask_passwords(self) -> None:
        for job in [job for job in self._desk.jobs if job.needs_password and job.id not in self._shown]:
            password = await asyncio.to_thread(getpass.getpass, f"Password of {job.name} (nothing: leave it out): ")
            if password:
                await self._desk.unlock(job.id, password)
                await self._desk.indexed()

    def _say(self, job: IngestJob) -> None:
        first = job.id not in self._shown
        self._shown.add(job.id)
        if job.phase is not JobPhase.DONE:
            self.problems += 1
        elif not self._request.quiet and not self._request.json and (first or self._request.watch):
            sure = f", pictures read {job.confidence:.0f} % sure" if job.confidence is not None else ""
            print(f"{job.name}: {counted(job.passages, 'passage')}{sure}", flush=True)

    async def missing(self, folder: Path) -> None:
        """Tell which files of a folder are in the memory and no longer on the disk, or have them forgotten."""
        known = {place for document in await self._desk.documents() for place in (document.origin, *document.also)}
        for place in sorted(known):
            path = Path(place)
            if path.is_relative_to(folder) and not await asyncio.to_thread(path.exists):
                await self._gone(path)

    async def _gone(self, path: Path) -> None:
        if not self._request.forget_gone:
            say(f"{path} is gone, and the memory keeps what it held: --forget-gone forgets it.")
            return
        for document in await self._desk.files.forget_path(str(path)):
            await self._desk.memory.forget_document(document)
        if not self._request.quiet:
            print(f"{path}: forgotten", flush=True)

    async def watch(self, folders: list[Path], changes: AsyncIterator[set[tuple[bool, Path]]]) -> None:
        """Follow the folders until interrupted."""
        say(f"watching {', '.join(map(str, folders))}; Ctrl+C ends it")
        async for some in changes:
            meant = {path for _, path in some if _of(path, folders)}
            there = [path for path in sorted(meant) if await asyncio.to_thread(path.is_file)]
            if there:
                self._shown -= {job.id for job in self._desk.jobs if job.name in {path.name for path in there}}
                await self.read(there)
                await self.finish()
            for path in sorted({path for gone, path in some if gone} & meant - set(there)):
                if await self._holds(path):
                    await self._gone(path)

    async def _holds(self, path: Path) -> bool:
        return any(str(path) in (document.origin, *document.also) for document in await self._desk.documents())


def _of(path: Path, folders: list[Path]) -> bool:
    return any(path.is_relative_to(folder) and is_meant(path, folder) for folder in folders)
