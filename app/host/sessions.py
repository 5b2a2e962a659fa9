"""Which engine session holds which chat, and what of a chat's path it has read. Runs in the engine's child."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from app.host.wire import GenerateRequest, PrepareRequest, PromptMessage, Role
from app.ids import ChatId, MessageId
from engine.engine import Engine
from engine.types import MessageKey, PoolFullError, SessionId


@dataclass(slots=True)
class Held:
    """One chat in the engine. `last` is the newest message its session has read or written."""

    session: SessionId
    system: str
    last: MessageId | None = None


class SessionBook:
    """Maps chats to sessions. A session is only ever appended to; a chat that took another path (a fork, a deleted
    turn) gets a new session, fed from text. When all sessions are taken, the one unused for longest is closed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: OrderedDict[ChatId, Held] = OrderedDict()

    def prepare(self, request: GenerateRequest | PrepareRequest, busy: frozenset[SessionId]) -> SessionId:
        """Bring the chat's session to the end of `request.messages`; returns it.

        Raises QuotaError, or PoolFullError when every session is answering.
        """
        held = self._held.get(request.chat)
        unread = None if held is None or held.system != request.system else _after(request.messages, held.last)
        if held is None or unread is None:
            self.close(request.chat)
            held = Held(self._open(request.system, busy), request.system)
            self._held[request.chat] = held
            unread = self._newest_that_fit(request.messages, held.session)
        self._held.move_to_end(request.chat)
        for message in unread:
            self._feed(held.session, message)
            held.last = message.id
        return held.session

    def answered(self, chat: ChatId, answer: MessageId) -> None:
        """The session has written `answer`."""
        self._held[chat].last = answer

    def session(self, chat: ChatId) -> SessionId | None:
        """The chat's session, when it has one."""
        held = self._held.get(chat)
        return None if held is None else held.session

    def close(self, chat: ChatId) -> None:
        """Give the chat's pages back; nothing when it holds none."""
        held = self._held.pop(chat, None)
        if held is not None:
            self._engine.close_session(held.session)

    def _open(self, system: str, busy: frozenset[SessionId]) -> SessionId:
        while True:
            try:
                return self._engine.open_session(system)
            except PoolFullError:
                idle = next((chat for chat, held in self._held.items() if held.session not in busy), None)
                if idle is None:
                    raise
                self.close(idle)

    def _newest_that_fit(self, messages: tuple[PromptMessage, ...], session: SessionId) -> list[PromptMessage]:
        """The newest messages that can be visible together; what is older would be read only to be evicted.

        The last message is always among them, however long.
        """
        room = self._engine.window(session).ring_tokens
        kept: list[PromptMessage] = []
        for message in reversed(messages):
            room -= self._engine.count_tokens(message.text)
            if kept and room < 0:
                break
            kept.append(message)
        kept.reverse()
        # A chat begins with a question: an answer without it would stand alone at the top.
        if len(kept) > 1 and kept[0].role is Role.ASSISTANT:
            kept = kept[1:]
        return kept

    def _feed(self, session: SessionId, message: PromptMessage) -> None:
        add = self._engine.add_user if message.role is Role.USER else self._engine.add_answer
        add(session, MessageKey(message.id), message.text)


def _after(messages: tuple[PromptMessage, ...], last: MessageId | None) -> list[PromptMessage] | None:
    """Messages after `last` (all, when nothing was read yet); None when the path does not contain it."""
    if last is None:
        return list(messages)
    ids = [message.id for message in messages]
    return list(messages[ids.index(last) + 1 :]) if last in ids else None
