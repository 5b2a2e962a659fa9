"""What a paste turns out to be, and the copy that is made of a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.drop.classify import PathKind, classify
from app.drop.explain import explain
from app.drop.stage import DropError, stage
from app.ports import DeskError, Dropped
from app.store.types import Attachment


async def read_pasted(pasted: str, attach: Callable[[Path], Awaitable[Attachment]]) -> Dropped:
    """Attach the files that a paste names; anything else comes back as text."""
    named = await asyncio.to_thread(classify, pasted)
    if not named:
        return Dropped(text=pasted, explanation=await asyncio.to_thread(explain, pasted))
    attachments: list[Attachment] = []
    problems: list[str] = []
    for item in named:
        if item.kind is PathKind.FOLDER:
            problems.append(f"{item.path} is a folder; drop the files in it.")
            continue
        try:
            attachments.append(await attach(item.path))
        except DeskError as error:
            problems.append(str(error))
    return Dropped(tuple(attachments), explanation=" ".join(problems))


async def staged(path: Path, files: Path) -> Attachment:
    """Copy a file's bytes below `files`. Raises DeskError."""
    try:
        return (await asyncio.to_thread(lambda: stage(path.expanduser(), files))).attachment
    except (DropError, RuntimeError) as error:  # RuntimeError: ~ of a user that there is not
        raise DeskError(str(error)) from error
