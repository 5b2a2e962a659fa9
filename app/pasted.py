"""What a paste turns out to be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.drop.classify import PathKind, classify
from app.drop.explain import explain
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
            problems.append(f"{item.path} is a folder: drop files of it, or run `aios-chat ingest` with it.")
            continue
        try:
            attachments.append(await attach(item.path))
        except DeskError as error:
            problems.append(str(error))
    return Dropped(tuple(attachments), explanation=" ".join(problems))
