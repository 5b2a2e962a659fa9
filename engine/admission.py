"""Who holds pages: chats come in at the cost of their quota, and others make room for them."""

from __future__ import annotations

from engine.answer import Priority
from engine.cache.kv_cache import KvCache
from engine.chat import Chat
from engine.session import Session
from engine.types import Position, SessionId


class Admission:
    """Lets the sessions of `chats` in and out of the cache; the least recently used of them is the first."""

    def __init__(self, cache: KvCache, chats: dict[SessionId, Chat]) -> None:
        self._cache, self._chats = cache, chats

    def enter(self, chat: Chat, priority: Priority) -> None:
        """The chat is about to answer or to be read. In the background it comes in when its turn does, see
        `background`. Raises PoolFullError when every admitted chat is at work in the foreground."""
        if priority is Priority.FOREGROUND and not self._cache.admitted(chat.session):
            self._make_room(self.at_work(Priority.BACKGROUND))
            self.resume(chat, chat.session.end)
        self._chats[chat.session.id] = self._chats.pop(chat.session.id)

    def at_work(self, priority: Priority) -> list[Session]:
        """Sessions that answer or are read with this priority."""
        return [chat.session for chat in self._chats.values() if chat.priority is priority]

    def background(self) -> list[Session]:
        """Sessions that answer in the background, or else those that are read in it, admitted as far as there is room
        beside those that answer."""
        waiting = [chat for chat in self._chats.values() if chat.priority is Priority.BACKGROUND]
        answering = [chat for chat in waiting if chat.answer is not None]
        read = [chat.session for chat in waiting if chat.answer is None]
        for chat in answering or waiting:
            if not self._cache.admitted(chat.session) and self._make_room(read if answering else []):
                self.resume(chat, chat.session.end)
        return [chat.session for chat in answering or waiting if self._cache.admitted(chat.session)]

    def _make_room(self, others: list[Session]) -> bool:
        """Have room for one more chat: swap out the idle one that was unused for longest, or else one of `others`."""
        idle = [chat.session for chat in self._chats.values() if chat.priority is None]
        leaving = next((session for session in (*idle, *others) if self._cache.admitted(session)), None)
        if not self._cache.pool.room and leaving is not None:
            self._cache.swap_out(leaving)
        return self._cache.pool.room > 0

    def resume(self, chat: Chat, end: Position) -> None:
        """Admit the chat anew with its history [0, end), of which what is known counts as computed."""
        before = chat.session
        if self._cache.admitted(before) or self._cache.pool.room:  # else it is refused and stays as it is
            before.drop_before(before.floor_at(end))
        chat.session = self._cache.resume(before, self._cache.find(before, end))
        chat.session.tell_on_from(before)
        if chat.answer is not None:
            chat.answer.moved_to(chat.session)
