"""The headless application: the screens and the command line are two faces of this one object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from app.digester import Digester
from app.drop.fetch import Url
from app.drop.stage import unstage
from app.events import ChatsChanged, Event, IngestJob, Listener, ModelPhase, ModelState, Notice, Part, Severity
from app.file_access import FileAccess
from app.host.documents import DocumentInfo
from app.host.stream import HostError
from app.host.wire import Passage, SearchRequest, SearchResult, SourceKind
from app.ids import ChatId, JobId, MessageId, new_chat_id
from app.indexer import Indexer
from app.memory_access import MemoryAccess
from app.option_kinds import Switch
from app.outgoing import Outgoing, OutgoingQueues
from app.pasted import read_pasted
from app.paths import Paths
from app.ports import ChatView, DeskError, Dropped
from app.settings import Settings
from app.startup import Startup
from app.store.store import Owner, Store, StoreError, acquire_owner
from app.store.types import Attachment, Base, Chat, Message
from app.turn_options import TurnOptions, turn_options
from app.turns import Turns
from app.words import words_in_chats

OPENED_MESSAGES = 50
"""Messages of an opened chat that are handed out at once; earlier ones on demand."""

T = TypeVar("T")


class Desk:
    """Implements `DeskPort`. Everything here runs on one event loop; what blocks runs in threads or children."""

    def __init__(self, settings: Settings, paths: Paths) -> None:
        self._settings, self._paths = settings, paths
        self._listeners: list[Listener] = []
        self._startup = Startup(settings, paths, self._emit)
        self._queues = OutgoingQueues()
        self._store_: Store | None = None
        self._indexer_: Indexer | None = None
        self._memory_: MemoryAccess | None = None
        self._owner: Owner | None = None
        self._unsaved: dict[ChatId, Chat] = {}
        self._turns_: Turns | None = None
        self.digester = Digester(self._startup.host, self._emit)
        self._background: set[asyncio.Task[Any]] = set()
        self._model_task: asyncio.Task[None] | None = None
        self._memory_task: asyncio.Task[None] | None = None

    # --- life ---

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every event from now on."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Open the store, recover what a crash left, begin fetching and loading. Raises DeskError."""
        await self.open()
        await self.own()
        self.start_model()
        self.start_memory()
        if self._settings.digests is Switch.ON and self._owner is not None:
            self.digester.start()

    async def open(self) -> None:
        """Open the store; no model is touched and nothing is changed. Raises DeskError."""
        try:
            self._store_ = store = await asyncio.to_thread(Store.open, self._paths.chats_db)
        except StoreError as error:
            raise DeskError(str(error)) from error
        host = self._startup.host
        self._indexer_ = Indexer(store, host, self._emit, self._paths.files)
        self._memory_ = MemoryAccess(store, host, self._paths.files, self._indexer_.wake)
        self._turns_ = Turns(store, host, self._indexer_, self._queues, self, self._emit)
        for notice in self._settings.notices:
            self._emit(Notice(notice, Severity.WARNING))

    async def own(self) -> None:
        """Become the one program that recovers, works the outbox and keeps the queues of this data folder, unless
        another is. Raises DeskError."""
        self._owner = await asyncio.to_thread(acquire_owner, self._paths.data)
        if self._owner is None:
            sentence = "Another aios-chat works on this data folder; this one chats, but recalls and reads no files."
            self._emit(Notice(sentence, Severity.WARNING))
            return
        await self._try(self._store.recover)
        await asyncio.to_thread(self._queues.mirror, self._paths.data / "queue.json")

    def start_model(self) -> None:
        """Begin to fetch and load the chat model; see `model_up`."""
        self._model_task = self._spawn(self._startup.start_model())

    def start_memory(self) -> None:
        """Begin to fetch the embedder and open the memory; then the outbox is worked. See `memory_up`."""
        self._memory_task = self._spawn(self._bring_memory_up())

    async def _bring_memory_up(self) -> None:
        await self._startup.start_memory()
        await self._startup.ready(Part.MEMORY)
        if self._unread:
            self._indexer.fail_waiting(self._unread)
        else:
            self._indexer.start()

    @property
    def _unread(self) -> str:
        """Why this run reads no files, in a sentence; "" when it does."""
        state = self._startup.state(Part.MEMORY)
        if state.phase is ModelPhase.FAILED:
            return state.text
        return "Another aios-chat works on this data folder: close that one first." if self._owner is None else ""

    async def close(self) -> None:
        """Stop answers (partials are kept), end the children, close the store."""
        await self.digester.stop()
        if self._turns_ is not None:
            await self._turns_.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._indexer_ is not None:
            await self._indexer_.stop()
        await self._startup.stop()
        if self._store_ is not None:
            await asyncio.to_thread(self._store_.close)
        if self._owner is not None:
            self._owner.release()

    @property
    def models(self) -> tuple[ModelState, ...]:
        """The latest state of the engine's model and of the memory."""
        return self._startup.states

    @property
    def jobs(self) -> tuple[IngestJob, ...]:
        """Every ingestion of this run, oldest first."""
        return self._indexer.jobs

    async def model_up(self) -> None:
        """Wait until the model answers. Raises DeskError with the reason when it will not."""
        await self._up(Part.MODEL, self._model_task)

    async def memory_up(self) -> None:
        """Wait until the memory is open and its outbox worked. Raises DeskError with the reason when it will not."""
        await self._up(Part.MEMORY, self._memory_task)

    async def indexed(self) -> None:
        """Wait until everything in the outbox has reached the memory."""
        await self._indexer.drained()

    async def _up(self, part: Part, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            await asyncio.shield(task)
        state = await self._startup.ready(part)
        if state.phase is ModelPhase.FAILED:
            raise DeskError(state.text)

    # --- chats ---

    async def chats(self) -> list[Chat]:
        """All chats, most recently used first."""
        return await self._try(self._store.chats)

    async def find_chat(self, given: str) -> Chat:
        """The chat that a person means by an id, its beginning, or a title. Raises DeskError."""
        chat = await self._try(lambda: self._store.find_chat(given))
        if chat is None:
            raise DeskError(f"There is no chat {given!r}; `aios-chat chats` lists them.")
        return chat

    async def new_chat(self) -> ChatView:
        """A chat without messages; it is stored with its first message."""
        now = time.time()
        chat = Chat(new_chat_id(), "", now, now, None)
        self._unsaved[chat.id] = chat
        return ChatView(chat, (), 0, None)

    async def open_chat(self, chat: ChatId) -> ChatView:
        """Open a stored chat. Raises DeskError when there is none."""
        row = await self._try(lambda: self._store.chat(chat))
        if row is None:
            raise DeskError("That chat is gone.")
        messages = await self._try(lambda: self._store.path(chat, OPENED_MESSAGES))
        earlier = max(0, await self._try(lambda: self._store.path_length(chat)) - len(messages))
        return ChatView(row, tuple(messages), earlier, await self._startup.window(chat), self._queues.texts(chat))

    async def earlier_messages(self, chat: ChatId, before: MessageId, limit: int) -> list[Message]:
        """Up to `limit` messages of the path before `before`, oldest first."""
        return await self._try(lambda: self._store.path(chat, limit, before))

    async def fork(self, chat: ChatId, message: MessageId) -> ChatView:
        """A new chat that shares the path up to and including `message`."""
        forked = await self._try(lambda: self._store.fork(chat, message))
        self._emit(ChatsChanged())
        return await self.open_chat(forked.id)

    async def rename(self, chat: ChatId, title: str) -> None:
        """Name a chat."""
        await self._try(lambda: self._store.rename(chat, title))
        self._emit(ChatsChanged())

    async def delete(self, chat: ChatId) -> None:
        """Delete a chat: its own messages and the files that were dropped in no other chat, here and in the memory."""
        await self._turns.drop(chat)
        deleted = await self._try(lambda: self._store.delete_chat(chat))
        for document in deleted.documents:
            await self.memory.forget_document(document)
        for copy in deleted.staged:
            await asyncio.to_thread(unstage, copy, self._paths.files)
        if deleted.warning:
            self._emit(Notice(deleted.warning, Severity.WARNING))
        if self._startup.host.engine.alive:
            await self._startup.host.close_session(chat)
        self._indexer.wake()
        self._emit(ChatsChanged())

    async def star(self, message: MessageId, starred: bool) -> Message:
        """Star or unstar a message."""
        return await self._try(lambda: self._store.star(message, starred))

    async def pin(self, chat: ChatId, message: MessageId) -> Message:
        """Keep a message in the chat's window, once the model is up. Raises DeskError when too much is pinned."""
        await self.model_up()
        return await self._try_async(self._turns.pin(chat, message))

    async def unpin(self, chat: ChatId, message: MessageId) -> Message:
        """Let a message leave the chat's window as any other does."""
        return await self._try_async(self._turns.unpin(chat, message))

    async def pinned(self, chat: ChatId) -> list[Message]:
        """The messages that are pinned to the chat's window, oldest first."""
        return await self._try(lambda: self._store.pinned(chat))

    async def favorites(self) -> list[Message]:
        """Starred messages, newest first."""
        return await self._try(self._store.favorites)

    async def export(self, chat: ChatId) -> str:
        """The chat as Markdown."""
        return await self._try(lambda: self._store.export_markdown(chat))

    async def export_json(self, chat: ChatId) -> str:
        """The chat as JSON."""
        return await self._try(lambda: self._store.export_json(chat))

    async def sources(self, message: MessageId) -> tuple[Passage, ...]:
        """The passages that went with a message's prompt or answer."""
        found = await self._try(lambda: self._store.message(message))
        return found.passages if found is not None else ()

    # --- a turn ---

    async def send(
        self, chat: ChatId, text: str, *, attachments: tuple[Attachment, ...] = (), quote: MessageId | None = None
    ) -> None:
        """Commit a user message and have it answered; queued while an answer runs."""
        await self._turns.send(chat, Outgoing(text, attachments, quote), lambda: self._begin(chat))

    async def resume(self, chat: ChatId) -> None:
        """Answer what an earlier run left waiting in a stored chat; of two programs, only one does."""
        if self._owner is not None:
            self._turns.resume(chat)

    async def unqueue(self, chat: ChatId) -> str | None:
        """Take the newest queued text back; None when there is none."""
        return await self._turns.unqueue(chat)

    async def stop(self, chat: ChatId) -> bool:
        """Stop the running answer, keeping what there is. False when none runs."""
        return await self._turns.stop(chat)

    async def settled(self, chat: ChatId) -> None:
        """Wait until the chat's turns are over."""
        await self._turns.settled(chat)

    async def _begin(self, chat: ChatId) -> None:
        if chat in self._unsaved:
            await asyncio.to_thread(self._store.create_chat, id=chat)
            del self._unsaved[chat]

    async def ready_to_answer(self) -> None:
        """Wait until the model is up, and the memory up or given up. A model that failed is tried again: the network
        may be back. Raises DeskError when it fails once more."""
        if self._startup.state(Part.MODEL).phase is ModelPhase.FAILED:
            self.start_model()
        await self.model_up()
        if self._settings.recall is Switch.ON and self._memory_task is not None:
            await asyncio.shield(self._memory_task)
            await self._startup.ready(Part.MEMORY)

    def turn_options(self) -> TurnOptions:
        """How to answer, once the model is up."""
        engine = self._startup.state(Part.MODEL).engine
        return turn_options(self._settings, engine, self._startup.tokenizer_file)

    # --- files and memory ---

    async def drop(self, chat: ChatId, pasted: str) -> Dropped:
        """Read a paste: files are staged and ingested in the background, anything else comes back as text."""
        return await read_pasted(pasted, lambda path: self.attach(chat, path))

    async def attach(self, chat: ChatId, path: Path | Url) -> Attachment:
        """Stage one file, or fetch a page, and ingest it in the background. Raises DeskError with one sentence."""
        attachment, _ = await self.files.attach(path, chat)
        if self._unread:
            self._indexer.fail_waiting(self._unread)
        return attachment

    async def unlock(self, job: JobId, password: str) -> None:
        """Read a file again that needed a password."""
        await self.files.unlock(job, password)

    async def search(self, query: str, *, kind: SourceKind | None = None, limit: int = 20) -> SearchResult:
        """Search chats and documents; only the words of the chats while the memory is not up. Raises DeskError."""
        if self._startup.state(Part.MEMORY).phase is not ModelPhase.READY and kind is not SourceKind.DOCUMENT:
            return await self._try(lambda: words_in_chats(self._store, query, limit))
        return await self.memory.search(SearchRequest(query, limit, kind))

    async def bases(self, chat: ChatId) -> tuple[tuple[Base, ...], list[Base]]:
        """The bases that a chat searches (none: everything), and all there are."""
        return await self.memory.bases_of(chat), await self.memory.bases()

    async def search_web(self, question: str) -> tuple[Attachment, ...]:
        """Ask the search engine of the settings; what it finds goes with the question as files do. Raises DeskError."""
        return await self.memory.search_web(self._settings.web_search, question)

    async def choose_bases(self, chat: ChatId, names: Sequence[str]) -> tuple[Base, ...]:
        """Have a chat search these bases and the chats only; everything for none."""
        await self._begin(chat)
        return await self.memory.choose_bases(chat, names)

    async def documents(self) -> list[DocumentInfo]:
        """Everything ingested. Raises DeskError while the memory is not up."""
        return await self.memory.documents()

    # --- inside ---

    @property
    def memory(self) -> MemoryAccess:
        """What else can be asked of the memory."""
        return _opened(self._memory_)

    @property
    def files(self) -> FileAccess:
        """Files on their way into the memory (wait with `indexed`)."""
        return FileAccess(self._indexer, self._startup.host, self._paths.files)

    @property
    def _store(self) -> Store:
        return _opened(self._store_)

    @property
    def _indexer(self) -> Indexer:
        return _opened(self._indexer_)

    @property
    def _turns(self) -> Turns:
        return _opened(self._turns_)

    async def _try(self, call: Callable[[], T]) -> T:
        """Run a store call in a thread; its error becomes a DeskError."""
        try:
            return await asyncio.to_thread(call)
        except StoreError as error:
            raise DeskError(str(error)) from error

    async def _try_async(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return await call
        except (HostError, StoreError) as error:
            raise DeskError(str(error)) from error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _emit(self, event: Event) -> None:
        if isinstance(event, ModelState) and event.part == Part.MEMORY and event.phase is ModelPhase.FAILED:
            self._indexer.fail_waiting(event.text)
        for listener in (self.digester.hear, *self._listeners):
            listener(event)


def _opened(part: T | None) -> T:
    if part is None:
        raise DeskError("The chats are not open yet; try again in a moment.")
    return part
