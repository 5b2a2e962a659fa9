"""`aios-chat ingest` and `aios-chat search`: files in, passages out, no model."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

from app.commands.session import Progress, as_json, counted, opened, say
from app.events import JobPhase
from app.host.wire import SourceKind
from app.ports import DeskError
from app.settings import Settings

MOST_SHOWN = 300
"""Characters of a passage in a list for people."""


async def ingest(settings: Settings, paths: tuple[Path, ...], *, json: bool, quiet: bool) -> int:
    """Read files (and the files of folders) into the memory. A bad file costs one sentence and an exit code of 1;
    the others are read all the same."""
    problems = 0
    async with opened(settings, Progress(quiet or json)) as desk:
        await desk.own()
        desk.start_memory()
        for path in await asyncio.to_thread(_files, paths):
            try:
                await desk.ingest(await desk.stage(path))
            except DeskError as error:
                problems += 1
                say(str(error))
        await desk.memory_up()
        await desk.indexed()
        done = [job for job in desk.jobs if job.phase is JobPhase.DONE]
        problems += len(desk.jobs) - len(done)
        if json:
            print(as_json([asdict(job) for job in desk.jobs]))
        elif not quiet:
            for job in done:
                sure = f", pictures read {job.confidence:.0f} % sure" if job.confidence is not None else ""
                print(f"{job.name}: {counted(job.passages, 'passage')}{sure}")
    return 1 if problems else 0


def _files(paths: tuple[Path, ...]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        else:
            found.append(path)
    return found


async def search(settings: Settings, query: str, *, kind: SourceKind | None, limit: int, json: bool) -> int:
    """Print the passages that fit a query best. Exit code 1 when nothing was found."""
    async with opened(settings, Progress(json)) as desk:
        await desk.own()
        desk.start_memory()
        await desk.memory_up()
        result = await desk.search(query, kind=kind, limit=limit)
    if json:
        print(as_json([{**asdict(p), "place": p.place()} for p in result.passages]))
    else:
        for passage in result.passages:
            text = " ".join(passage.text.split())
            print(f"{passage.label}. {passage.place()}  ({passage.score:.2f})")
            print(f"   {text[:MOST_SHOWN]}{'…' if len(text) > MOST_SHOWN else ''}")
        if not result.passages:
            say("nothing was found")
    return 0 if result.passages else 1
