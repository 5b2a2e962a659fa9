"""Files and web pages on their way from a person into the memory."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from app.drop.fetch import FetchError, Url, fetch
from app.drop.stage import DropError, stage
from app.events import IngestJob
from app.host.host import Host
from app.host.stream import HostError
from app.ids import ChatId, DocumentId, JobId
from app.indexer import Indexer
from app.ports import DeskError
from app.store.db import StoreError
from app.store.types import Attachment


class FileAccess:
    """Every method raises DeskError, one sentence."""

    def __init__(self, indexer: Indexer, host: Host, folder: Path) -> None:
        """`folder` keeps the staged copies."""
        self._indexer, self._host, self._folder = indexer, host, folder

    async def ingest(self, source: Path | Url, chat: ChatId | None = None, password: str = "") -> IngestJob:
        """Copy a file, or fetch a page, and put it into the memory; returns its job."""
        return (await self.attach(source, chat, password))[1]

    async def attach(self, source: Path | Url, chat: ChatId | None, password: str = "") -> tuple[Attachment, IngestJob]:
        """The same, for a message."""
        try:
            staged = await asyncio.to_thread(self._staged, source)
            return staged, await self._indexer.ingest(chat, staged, password)
        except (DropError, FetchError, StoreError, HostError) as error:
            raise DeskError(str(error)) from error
        except RuntimeError as error:  # ~ of a user that there is not
            raise DeskError(f"{source} cannot be read: {error}") from error

    async def unlock(self, job: JobId, password: str) -> None:
        """Read a file that needed a password once more."""
        await self._indexer.unlock(job, password)

    async def forget_path(self, origin: str) -> tuple[DocumentId, ...]:
        """A file is gone: have the memory forget what it held; the documents that stood nowhere else."""
        try:
            return await self._host.forget_path(origin)
        except HostError as error:
            raise DeskError(str(error)) from error

    def _staged(self, source: Path | Url) -> Attachment:
        if isinstance(source, Path):
            return stage(source.expanduser(), self._folder).attachment
        with tempfile.TemporaryDirectory() as folder:
            page = fetch(source, Path(folder))
            return replace(stage(page, self._folder).attachment, origin=source)
