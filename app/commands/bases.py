"""`aios-chat base add`, `list` and `remove`: named collections of folders and files."""

from __future__ import annotations

import os
from pathlib import Path

from app.commands.ingest import Ingest, ingest
from app.commands.session import Progress, as_json, opened
from app.ports import DeskError
from app.settings import Settings


async def add(settings: Settings, name: str, paths: tuple[Path, ...], *, quiet: bool) -> int:
    """Put paths into a base and read what is there. Exit code 1 when a file could not be read. Raises DeskError."""
    whole = _absolute(paths)
    async with opened(settings, Progress(True)) as desk:
        base = await desk.memory.add_to_base(name, whole)
    code = await ingest(settings, Ingest(tuple(map(str, whole)), quiet=quiet))
    if not quiet:
        print(f"{base.name}: {', '.join(base.paths)}")
    return code


async def list_bases(settings: Settings, *, json: bool) -> int:
    """List every base with its paths."""
    async with opened(settings, Progress(True)) as desk:
        bases = await desk.memory.bases()
    if json:
        print(as_json(bases))
    for base in bases if not json else ():
        print("\n".join((base.name, *map(_shown, base.paths))))
    return 0


def _shown(path: str) -> str:
    return f"   {path}{'' if Path(path).exists() else '  (not there now)'}"


async def remove(settings: Settings, name: str) -> int:
    """Dissolve a base. Raises DeskError when there is none of that name."""
    async with opened(settings, Progress(True)) as desk:
        base = await desk.memory.remove_base(name)
    print(f"{base.name} is dissolved; its files stay in the memory.")
    return 0


def _absolute(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The paths from the root on. Raises DeskError for one that is not there."""
    whole = tuple(Path(os.path.abspath(path.expanduser())) for path in paths)
    missing = next((path for path in whole if not path.exists()), None)
    if missing is not None:
        raise DeskError(f"There is no file or folder {missing}: nothing was put into the base.")
    return whole
