"""Messages that a person pins to the window: asked of the engine, kept, and read beside whatever else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from weakref import WeakValueDictionary

from app.chat_prompt import ChatPrompt, chat_prompt
from app.errors import PersonError
from app.events import Listener, WindowChanged
from app.host.host import Host
from app.host.stream import Stream
from app.host.wire import ReadRequest, WindowView
from app.ids import ChatId, MessageId
from app.ports import DeskError
from app.store.store import Store
from app.store.types import Message, MessageStatus


class Pinning:
    """Pins and unpins. The window is rebuilt from text in the background; the next question waits for no more of it
    than is left.

    They ask the engine one after the other, each for all the pins that there are when its turn comes: of two that asked
    at once, the later reading would be without the other's message, and it is the later one that stays. To unpin is a
    write to the disk, which waits for no engine but where that message itself is being pinned: the last word counts.
    """

    def __init__(self, store: Store, host: Host, emit: Listener) -> None:
        self._store, self._host, self._emit = store, host, emit
        self._in_turn = asyncio.Lock()
        self._of_message: WeakValueDictionary[MessageId, asyncio.Lock] = WeakValueDictionary()
        self._reading: set[asyncio.Task[None]] = set()

    async def pin(self, chat: ChatId, message: MessageId, system: str) -> Message:
        """Keep a message in the chat's window. Raises DeskError when it cannot be, HostError in the engine's words when
        too much is pinned; nothing is changed then."""
        async with self._alone(message), self._in_turn:
            stream = self._host.read(_request(chat, await asyncio.to_thread(self._with, chat, message), system))
            try:
                await anext(stream)  # told once it is known to fit
                pinned = await asyncio.to_thread(self._store.pin, message, True)
            except BaseException:
                await stream.aclose()
                raise
        self._start(self._follow(chat, stream))
        return pinned

    async def unpin(self, chat: ChatId, message: MessageId, system: str) -> Message:
        """Let a message leave the window as any other does."""
        async with self._alone(message):
            unpinned = await asyncio.to_thread(self._store.pin, message, False)
        self._start(self._read_again(chat, system))
        return unpinned

    async def close(self) -> None:
        """Leave off reading."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _alone(self, message: MessageId) -> asyncio.Lock:
        return self._of_message.setdefault(message, asyncio.Lock())

    def _with(self, chat: ChatId, message: MessageId) -> ChatPrompt:
        """The chat as it is read once `message` is pinned. Raises DeskError."""
        path = self._store.path(chat)
        chosen = next((m for m in path if m.id == message), None)
        if chosen is None:
            raise DeskError("That message is not on this chat's path any more.")
        if chosen.status is MessageStatus.STREAMING or not chosen.text.strip():
            raise DeskError("There is nothing to pin yet: wait until the message is written.")
        return chat_prompt(self._store, chat, [m for m in path if m.pinned or m.id == message])

    def _start(self, reading: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(reading))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read_again(self, chat: ChatId, system: str) -> None:
        async with self._in_turn:
            prompt = await asyncio.to_thread(chat_prompt, self._store, chat)
            stream = self._host.read(_request(chat, prompt, system))
        await self._follow(chat, stream)

    async def _follow(self, chat: ChatId, stream: Stream) -> None:
        async with stream:
            async for event in stream:
                if isinstance(event, WindowView):
                    self._emit(WindowChanged(chat, event))


async def _quietly(reading: Coroutine[None, None, None]) -> None:
    """Leave a reading that cannot be done: without an engine, with a model or a disk that fails, with too much pinned
    still, of a chat that was deleted meanwhile. The next question meets the same and tells it."""
    with suppress(PersonError):
        await reading


def _request(chat: ChatId, prompt: ChatPrompt, system: str) -> ReadRequest:
    return ReadRequest(chat, system, prompt.messages, prompt.pinned)
