"""Who is being answered, and who waits: one turn at a time in a chat, questions typed meanwhile in a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from app.conversation import Conversation
from app.events import ChatsChanged, Listener, MessageAdded, Notice, QueueChanged, Severity, TurnsOver
from app.host.host import Host
from app.host.stream import HostError
from app.ids import ChatId, DocumentId, MessageId
from app.indexer import Indexer
from app.outgoing import Outgoing, OutgoingQueues
from app.paths import PathsError
from app.pinning import Pinning
from app.ports import DeskError
from app.store.store import Store, StoreError
from app.store.types import Message
from app.turn_options import TurnOptions

CLOSE_SECONDS = 5.0
"""How long a stopped answer may take to end: a prefill chunk and a commit."""


class Models(Protocol):
    """What a turn must know of the models."""

    async def ready_to_answer(self) -> None:
        """Wait until the model is up, and the memory up or given up. Raises DeskError when the model failed."""

    def turn_options(self) -> TurnOptions:
        """How to answer, once the model is up."""


class Turns:
    """Runs the turns of every chat."""

    def __init__(
        self, store: Store, host: Host, indexer: Indexer, queues: OutgoingQueues, models: Models, emit: Listener
    ) -> None:
        self._store, self._host, self._indexer = store, host, indexer
        self._queues, self._models, self._emit = queues, models, emit
        self._running: dict[ChatId, asyncio.Task[None]] = {}
        self._conversations: dict[ChatId, Conversation] = {}
        """The turn of every chat that runs: from before its question is stored, so that a stop finds it."""
        self._pinning = Pinning(store, host, emit)
        self._closing = False

    async def send(self, chat: ChatId, item: Outgoing, begin: Callable[[], Awaitable[None]]) -> None:
        """Answer `item`, or queue it behind the turn that runs. `begin` makes sure that the chat is stored."""
        self._queues.put(chat, item)
        if not self._run(chat, begin):
            self._emit(QueueChanged(chat, self._queues.texts(chat)))
        await self._save_queues()

    def resume(self, chat: ChatId) -> None:
        """Answer what an earlier run of the program left in the queue of a stored chat."""
        if self._queues.texts(chat):
            self._run(chat, _stored)

    def _run(self, chat: ChatId, begin: Callable[[], Awaitable[None]]) -> bool:
        """Work the chat's queue; False when that is being done already."""
        if chat in self._running:
            return False
        self._conversations[chat] = self._conversation(chat)
        self._running[chat] = asyncio.get_running_loop().create_task(self._turns(chat, begin))
        return True

    async def unqueue(self, chat: ChatId) -> str | None:
        """Take the newest queued text back; None when there is none."""
        item = self._queues.last(chat)
        self._emit(QueueChanged(chat, self._queues.texts(chat)))
        await self._save_queues()
        return item.text if item is not None else None

    async def stop(self, chat: ChatId) -> bool:
        """Stop the running turn, keeping what there is of the answer; one that has only begun goes without. False when
        none runs."""
        if chat not in self._running:
            return False
        self._conversations[chat].stop()
        return True

    async def settled(self, chat: ChatId) -> None:
        """Wait until the chat's turns are over."""
        if chat in self._running:
            await asyncio.wait([self._running[chat]])

    async def pin(self, chat: ChatId, message: MessageId) -> Message:
        """Pin a message to the chat's window; see `Pinning`."""
        return await self._pinning.pin(chat, message, self._models.turn_options().system)

    async def unpin(self, chat: ChatId, message: MessageId) -> Message:
        """Let go of a message that was pinned."""
        return await self._pinning.unpin(chat, message, self._models.turn_options().system)

    async def drop(self, chat: ChatId) -> None:
        """The chat is going: stop its turn, forget its queue."""
        self._queues.drop(chat)
        await self._save_queues()
        if await self.stop(chat):
            await asyncio.wait([self._running[chat]], timeout=CLOSE_SECONDS)

    async def close(self) -> None:
        """Stop every turn; partial answers are kept, queues stay on disk."""
        self._closing = True
        await self._pinning.close()
        tasks = list(self._running.values())
        for conversation in self._conversations.values():
            conversation.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()

    async def _turns(self, chat: ChatId, begin: Callable[[], Awaitable[None]]) -> None:
        """Answer what is queued, oldest first. Nothing is awaited between an empty queue and the end, so a question
        put meanwhile is either seen here or starts a run of its own."""
        try:
            await begin()
            while not self._closing and (item := self._queues.next(chat)) is not None:
                self._emit(QueueChanged(chat, self._queues.texts(chat)))
                await self._turn(chat, item)
                self._conversations[chat] = self._conversation(chat)
        except (DeskError, StoreError, HostError) as error:
            self._emit(Notice(str(error), Severity.ERROR))
            self._emit(QueueChanged(chat, self._queues.texts(chat)))
        finally:
            del self._running[chat], self._conversations[chat]
            self._emit(TurnsOver(chat))

    async def _turn(self, chat: ChatId, item: Outgoing) -> None:
        """Commit the question and answer it, unless it is stopped before. A question that could not be committed
        stands in the queue again."""
        conversation = self._conversations[chat]
        try:
            question = await self._commit(chat, item)
        except StoreError:
            self._queues.put_back(chat, item)
            raise
        await self._save_queues()
        documents = await conversation.wait(self._wait_for_parts(item))
        if documents is not None:
            await conversation.answer(question, self._models.turn_options(), documents)
            self._indexer.wake()

    def _conversation(self, chat: ChatId) -> Conversation:
        return Conversation(chat, self._store, self._host, self._emit)

    async def _wait_for_parts(self, item: Outgoing) -> tuple[DocumentId, ...]:
        await self._models.ready_to_answer()
        return await self._indexer.documents(item.attachments)

    async def _save_queues(self) -> None:
        """Mirror the queues on the disk; one that cannot be written to costs the mirror, not the turn."""
        try:
            await asyncio.to_thread(self._queues.save)
        except PathsError as error:
            self._emit(Notice(f"The waiting questions are not on the disk: {error}", Severity.WARNING))

    async def _commit(self, chat: ChatId, item: Outgoing) -> Message:
        question = await asyncio.to_thread(
            lambda: self._store.add_user_message(chat, item.text, attachments=item.attachments, quote=item.quote)
        )
        self._emit(MessageAdded(chat, question))
        self._emit(ChatsChanged())
        return question


async def _stored() -> None:
    """A chat that was opened is stored: nothing is left to do before its turns."""
