"""A person at a real desk: real model, real memory, real files. No screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.desk import Desk
from app.events import AnswerDone, Event, JobChanged, JobPhase, RecallShown, WindowChanged
from app.host.wire import WindowView
from app.ids import ChatId
from app.paths import Paths
from app.settings import load_settings
from app.store.types import Attachment, Message
from tests.models import embedder_folder, models_folder, starter_file


def home(folder: Path) -> Paths:
    """A data folder of its own that shares the fetched models."""
    starter_file()
    embedder_folder()
    paths = Paths(folder, folder / "settings.toml")
    if not paths.models.exists():
        folder.mkdir(parents=True, exist_ok=True)
        paths.models.symlink_to(models_folder())
    return paths.create()


class Person:
    """Asks, waits for the answer, and keeps what was seen on the way."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.recalls: list[RecallShown] = []
        self.window: WindowView | None = None
        self.jobs: dict[str, JobChanged] = {}
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        desk.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        match event:
            case AnswerDone(_, message):
                self._answers.put_nowait(message)
            case RecallShown():
                self.recalls.append(event)
            case WindowChanged(_, window):
                self.window = window
            case JobChanged(job):
                self.jobs[job.name] = event

    async def ask(self, chat: ChatId, text: str, *, attachments: tuple[Attachment, ...] = ()) -> Message:
        """Send a question; the finished answer."""
        await self.desk.send(chat, text, attachments=attachments)
        answer = await self._answers.get()
        await self.desk.settled(chat)
        await self.desk.indexed()
        return answer

    def sees(self, message: Message) -> bool:
        """Whether any token of a message is in the window, as the engine says."""
        assert self.window is not None
        return any(segment.message == message.id and segment.visible_tokens for segment in self.window.segments)

    def failed_jobs(self) -> list[str]:
        """Sentences of the files that could not be read."""
        return [e.job.detail for e in self.jobs.values() if e.job.phase is JobPhase.FAILED]


@asynccontextmanager
async def at_the_desk(folder: Path, **options: object) -> AsyncIterator[Person]:
    """A running desk on `folder`, models up."""
    settings = load_settings(None, {"temperature": 0, "threads": 2, **options}, environ={})
    desk = Desk(settings, home(folder))
    try:
        await desk.start()
        person = Person(desk)
        await desk.model_up()
        await desk.memory_up()
        yield person
    finally:
        await desk.close()
