"""The chat screen's calls to the desk: each awaited in a worker, each ending in a message to the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from textual.message import Message as Event
from textual.message_pump import MessagePump

from app.drop.fetch import Url
from app.events import IngestJob
from app.host.wire import Passage
from app.ids import ChatId, MessageId
from app.ports import ChatView, DeskError, DeskPort, Dropped
from app.store.types import Attachment, Base, Chat, Message, MessageStatus
from app.tui.live import LiveAnswers
from app.tui.text import export_path, job_of

STEP = 40
"""Messages fetched at once when the top of a chat is reached."""
LEAP = 200
"""Messages fetched at once on the way to a message far back."""


class ChatWork:
    """Knows which chat is open and asks the desk. Never touches a widget."""

    @dataclass
    class Opened(Event):
        """A chat is to be shown; `reveal` is the message to go to."""

        view: ChatView
        reveal: MessageId | None = None

    @dataclass
    class Titled(Event):
        """The open chat's title."""

        title: str

    @dataclass
    class Earlier(Event):
        """Earlier messages of a chat, oldest first."""

        chat: ChatId
        messages: list[Message]

    @dataclass
    class Changed(Event):
        """A message's facts changed."""

        message: Message

    @dataclass
    class Unsent(Event):
        """Texts that wait for the desk itself to be up."""

        texts: tuple[str, ...]

    @dataclass
    class GivenBack(Event):
        """What could not be sent, or was taken back from the queue."""

        text: str
        attachments: tuple[Attachment, ...] = ()
        quote: Message | None = None

    @dataclass
    class Attached(Event):
        """A file is ready to go with the next message."""

        attachment: Attachment

    @dataclass
    class PasteRead(Event):
        """What a paste turned out to be."""

        pastes: tuple[str, ...]
        dropped: Dropped

    @dataclass
    class PathRead(Event):
        """What a typed path turned out to be."""

        text: str
        dropped: Dropped

    @dataclass
    class Quoted(Event):
        """A message to quote in the next one."""

        message: Message

    @dataclass
    class SourcesRead(Event):
        """The passages behind a message."""

        message: Message
        passages: tuple[Passage, ...]

    def __init__(self, live: LiveAnswers) -> None:
        self.live = live
        self._desk: DeskPort | None = None
        self.chat: Chat | None = None
        self._up = asyncio.Event()
        self._failure: str | None = None
        self._sending = asyncio.Lock()
        self._unsent: list[str] = []
        self._screen: MessagePump | None = None

    @property
    def desk(self) -> DeskPort:
        """The desk. Raises DeskError before `begin`."""
        if self._desk is None:
            raise DeskError("The chats are not open yet; try again in a moment.")
        return self._desk

    def tell_to(self, screen: MessagePump) -> None:
        """Where the results go."""
        self._screen = screen

    def _tell(self, message: Event) -> None:
        if self._screen is not None:
            self._screen.post_message(message)

    @staticmethod
    def with_text(message: Message, text: str) -> Message:
        """The same message with another text."""
        return replace(message, text=text)

    def job_of(self, attachment: Attachment) -> IngestJob | None:
        """The reading of an attached file, if there is one."""
        return job_of(attachment, self.desk.jobs, self.chat.id if self.chat is not None else None)

    # --- start and chats --------------------------------------------------------------------------

    async def begin(self, desk: DeskPort, chat: ChatId | None) -> None:
        """Start the desk and open a chat. On failure, what was typed comes back with the reason."""
        self._desk = desk
        try:
            await desk.start()
            await self._show(await self._view(chat))
        except BaseException as error:
            self._failure = str(error) or type(error).__name__
            self._up.set()
            raise
        self._up.set()

    async def _view(self, chat: ChatId | None) -> ChatView:
        if chat is None:
            return await self.desk.new_chat()
        try:
            return await self.desk.open_chat(chat)
        except DeskError:
            if self.chat is None:
                # The desk works; only this chat is gone. A new one opens before the reason is told.
                await self._show(await self.desk.new_chat())
                self._up.set()
            raise

    async def _show(self, view: ChatView, reveal: MessageId | None = None) -> None:
        self.chat = view.chat
        self._tell(self.Opened(view, reveal))
        if view.queue:
            await self.desk.resume(view.chat.id)

    async def _open_id(self) -> ChatId:
        await self._up.wait()
        if self.chat is None:
            raise DeskError(f"The chats could not be opened: {self._failure}. Run aios-chat doctor.")
        return self.chat.id

    async def new_chat(self) -> None:
        """Begin a chat."""
        await self._up.wait()
        await self._show(await self.desk.new_chat())

    async def open_chat(self, chat: ChatId, reveal: MessageId | None = None) -> None:
        """Open a stored chat, with as much of its past as the message to reveal needs."""
        await self._up.wait()
        view = await self.desk.open_chat(chat)
        if self._stale(view):
            view = await self.desk.open_chat(chat)
        messages, earlier = view.messages, view.earlier
        while reveal is not None and earlier > 0 and all(m.id != reveal for m in messages):
            more = await self.desk.earlier_messages(chat, messages[0].id, LEAP)
            if not more:
                break
            messages, earlier = (*more, *messages), max(0, earlier - len(more))
        await self._show(replace(view, messages=messages, earlier=earlier), reveal)

    def _stale(self, view: ChatView) -> bool:
        """Whether an answer began or ended between the desk's look at the chat and ours."""
        ids = {m.id for m in view.messages}
        running = self.live.running(view.chat.id)
        ended = any(m.status is MessageStatus.STREAMING and self.live.text(m.id) is None for m in view.messages)
        return ended or (running is not None and running not in ids)

    async def refresh_title(self) -> None:
        """The chats changed: take the open one's title; when it was deleted, begin another."""
        chat = await self._open_id()
        known = {c.id: c for c in await self.desk.chats()}
        if self.chat is None or self.chat.id != chat:
            return
        if chat in known:
            self.chat = known[chat]
            self._tell(self.Titled(known[chat].title))
        elif self.chat.head is not None:
            await self._show(await self.desk.new_chat())

    async def earlier(self, before: MessageId) -> None:
        """More of the open chat's past."""
        chat = await self._open_id()
        self._tell(self.Earlier(chat, await self.desk.earlier_messages(chat, before, STEP)))

    async def fork(self, message: Message) -> None:
        """A chat that shares everything up to a message."""
        await self._show(await self.desk.fork(await self._open_id(), message.id))

    async def rename(self, title: str) -> None:
        """Name the open chat."""
        await self.desk.rename(await self._open_id(), title)
        self._tell(self.Titled(title))

    async def delete(self) -> None:
        """Delete the open chat and begin another."""
        await self.desk.delete(await self._open_id())
        await self._show(await self.desk.new_chat())

    async def export(self, argument: str) -> Path:
        """Write the open chat to a new file. Raises DeskError when that cannot be."""
        chat = await self._open_id()
        text = await self.desk.export(chat)
        path = await asyncio.to_thread(export_path, argument, self.chat.title if self.chat else "")
        try:
            await asyncio.to_thread(_write_new, path, text)
        except FileExistsError:
            raise DeskError(f"{path} is there already; give another name: /export PATH") from None
        except OSError as error:
            raise DeskError(f"{path} could not be written: {error.strerror or error}.") from error
        return path

    # --- messages ---------------------------------------------------------------------------------

    async def send(self, text: str, attachments: tuple[Attachment, ...], quote: Message | None) -> None:
        """Send in the order written, as soon as the desk is up; what fails comes back to the prompt."""
        waits = not self._up.is_set()
        if waits:
            self._unsent.append(text)
            self._tell(self.Unsent(tuple(self._unsent)))
        try:
            async with self._sending:
                chat = await self._open_id()
                quoted = quote.id if quote is not None else None
                await self.desk.send(chat, text, attachments=attachments, quote=quoted)
        except Exception:
            self._tell(self.GivenBack(text, attachments, quote))
            raise
        finally:
            if waits:
                self._unsent.remove(text)
                self._tell(self.Unsent(tuple(self._unsent)))

    async def unqueue(self) -> None:
        """Take the newest queued text back."""
        text = await self.desk.unqueue(await self._open_id())
        if text is not None:
            self._tell(self.GivenBack(text))

    async def stop(self) -> None:
        """Stop the running answer."""
        await self.desk.stop(await self._open_id())

    async def star(self, message: Message) -> None:
        """Star or unstar a message."""
        self._tell(self.Changed(await self.desk.star(message.id, not message.starred)))

    async def pin(self, message: Message) -> None:
        """Pin a message to the open chat's window, or unpin it."""
        chat = await self._open_id()
        change = self.desk.unpin if message.pinned else self.desk.pin
        self._tell(self.Changed(await change(chat, message.id)))

    async def sources(self, message: Message) -> None:
        """The passages behind a message; an answer without its own has its question's."""
        passages = message.passages or await self.desk.sources(message.id)
        if not passages and message.parent is not None:
            passages = await self.desk.sources(message.parent)
        self._tell(self.SourcesRead(message, passages))

    # --- knowledge bases --------------------------------------------------------------------------

    async def choose_bases(self, names: Sequence[str]) -> tuple[Base, ...]:
        """Have the open chat search these bases only."""
        return await self.desk.choose_bases(await self._open_id(), names)

    async def bases(self) -> tuple[tuple[Base, ...], list[Base]]:
        """The bases that the open chat searches, and all there are."""
        return await self.desk.bases(await self._open_id())

    # --- the web ----------------------------------------------------------------------------------

    async def ask_web(self, question: str) -> None:
        """Search the web for a question and send it with what was found; on failure it comes back to the prompt."""
        try:
            found = await self.desk.search_web(question)
        except Exception:
            self._tell(self.GivenBack(f"/web {question}"))
            raise
        await self.send(question, found, None)

    # --- files ------------------------------------------------------------------------------------

    async def read_paste(self, pastes: tuple[str, ...]) -> None:
        """Learn whether a paste names files. Text always lands, whatever happens."""
        whole = "".join(pastes)
        dropped = Dropped(text=whole)
        try:
            several = "\n".join(paste.strip(" \n") for paste in pastes)
            dropped = await self.desk.drop(await self._open_id(), whole if len(pastes) == 1 else several)
        finally:
            self._tell(self.PasteRead(pastes, dropped))

    async def read_path(self, text: str) -> None:
        """Learn whether a sent line is only a path."""
        dropped = Dropped(text=text)
        try:
            dropped = await self.desk.drop(await self._open_id(), text.strip())
        finally:
            self._tell(self.PathRead(text, dropped))

    async def attach(self, path: Path | Url) -> None:
        """Stage a file, or fetch a page, for the next message."""
        self._tell(self.Attached(await self.desk.attach(await self._open_id(), path)))


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
