"""Which engine session holds which chat, and what of a chat's path it has read. Runs in the engine's child."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from app.host import wire
from app.host.wire import GenerateRequest, PrepareRequest, PromptMessage, ReadRequest
from app.ids import ChatId, MessageId
from engine.engine import Engine
from engine.sinks import PinnedMessage, Role
from engine.types import EngineError, MessageKey, SessionId

HELD_CHATS = 64
"""Chats whose token histories are kept, a few bytes a token; their pages come and go as the engine sees fit."""

Request = GenerateRequest | PrepareRequest | ReadRequest
"""Whatever needs a chat to be read."""


@dataclass(slots=True)
class Held:
    """One chat in the engine. `read` are the messages that its session has read or written, oldest first; `texts` are
    hashes of what it has read of them."""

    session: SessionId
    system: str
    pinned: tuple[PromptMessage, ...]
    read: list[MessageId] = field(default_factory=list)
    texts: dict[MessageId, int] = field(default_factory=dict)


class SessionBook:
    """Maps chats to sessions. A chat that took another path (an answer regenerated, a question edited) is rewound to
    where the paths part, and a fork begins with the history of the chat it came from; both take up pages that the
    engine still knows. Only when those are gone is a chat fed from text; and when other messages are pinned to its
    window, which stand before all others."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: OrderedDict[ChatId, Held] = OrderedDict()

    def prepare(self, request: Request, busy: frozenset[SessionId]) -> SessionId:
        """Bring the chat's session to the end of `request.messages`; returns it. Raises, changing nothing, QuotaError
        when the system prompt and what is pinned leave too little of the window, and EngineError while it answers."""
        if self.session(request.chat) in busy:
            raise EngineError("this chat is still answering; stop the answer or wait for it")
        pinned = {message.id for message in request.pinned}
        request = replace(request, messages=tuple(message for message in request.messages if message.id not in pinned))
        held = self._rewound(request) or self._forked(request, busy)
        if held is None:
            session = self.opened(request)
            self.close(request.chat)
            held = Held(session, request.system, request.pinned)
            unread = self._newest_that_fit(request.messages, held.session)
        else:
            unread = list(request.messages[_shared(request.messages, held)[0] :])
        self._held[request.chat] = held
        self._held.move_to_end(request.chat)
        for message in unread:
            self._feed(held.session, message)
            held.read.append(message.id)
            held.texts[message.id] = hash(message.text)
        self._forget_oldest(busy)
        return held.session

    def opened(self, request: Request) -> SessionId:
        """A session that has read nothing beyond its sinks. Raises QuotaError."""
        return self._engine.open_session(request.system, [_pinned(message) for message in request.pinned])

    def answered(self, chat: ChatId, answer: MessageId) -> None:
        """The session has written `answer`."""
        self._held[chat].read.append(answer)

    def session(self, chat: ChatId) -> SessionId | None:
        """The chat's session, when it has one."""
        held = self._held.get(chat)
        return None if held is None else held.session

    def close(self, chat: ChatId) -> None:
        """Give the chat's pages back and forget its history; nothing when it holds none."""
        held = self._held.pop(chat, None)
        if held is not None:
            self._engine.close_session(held.session)

    def _rewound(self, request: Request) -> Held | None:
        """The chat's own session, holding nothing but what is on the path; None when it has to be fed from text."""
        held = self._held.get(request.chat)
        if held is None or not _same_sinks(held, request):
            return None
        shared, last = _shared(request.messages, held)
        if not shared:
            return None
        if last == len(held.read) and self._engine.admitted(held.session):
            return held
        if last < len(held.read):
            self._engine.rewind(held.session, MessageKey(held.read[last - 1]))
            del held.read[last:]
        return held if self._worth(request.messages, held, shared) else None

    def _forked(self, request: Request, busy: frozenset[SessionId]) -> Held | None:
        """A session with the history of the chat that shares most of the path; None when there is none, or when most
        of it would have to be computed again."""
        if request.chat in self._held:
            return None
        others = [h for h in self._held.values() if _same_sinks(h, request) and h.session not in busy]
        met = [(*_shared(request.messages, held), held) for held in others]
        shared, last, source = max(met, key=lambda pair: pair[:2], default=(0, 0, None))
        if source is None or not shared:
            return None
        read = source.read[:last]
        session = self._engine.fork(source.session, MessageKey(read[-1]))
        child = Held(session, request.system, request.pinned, read, dict(source.texts))
        if self._worth(request.messages, child, shared):
            return child
        self._engine.close_session(child.session)
        return None

    def _worth(self, messages: tuple[PromptMessage, ...], held: Held, shared: int) -> bool:
        """Whether to go on from `held`, which has read the first `shared` messages, or those of them that it was fed:
        that costs less than reading a windowful of text, and leaves nothing out that would be read then."""
        if self._engine.unread(held.session) > self._engine.window(held.session).quota_tokens:
            return False
        visible = len(held.read) + len(messages) - shared
        return len(held.read) >= shared or visible >= len(self._newest_that_fit(messages, held.session))

    def _forget_oldest(self, busy: frozenset[SessionId]) -> None:
        while len(self._held) > HELD_CHATS:
            idle = [chat for chat, held in self._held.items() if held.session not in busy]
            self.close(idle[0])

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
        if len(kept) > 1 and kept[0].role is wire.Role.ASSISTANT:
            kept = kept[1:]
        return kept

    def _feed(self, session: SessionId, message: PromptMessage) -> None:
        add = self._engine.add_user if message.role is wire.Role.USER else self._engine.add_answer
        add(session, MessageKey(message.id), message.text)


def _pinned(message: PromptMessage) -> PinnedMessage:
    role = Role.USER if message.role is wire.Role.USER else Role.ANSWER
    return PinnedMessage(MessageKey(message.id), role, message.text)


def _same_sinks(held: Held, request: Request) -> bool:
    return (held.system, held.pinned) == (request.system, request.pinned)


def _shared(messages: tuple[PromptMessage, ...], held: Held) -> tuple[int, int]:
    """How many of `messages`, the tail of a path, and of what a session has read lead to where the two part; with the
    same text, and nothing between them that is not on the path. (0, 0) when they do not meet."""
    place = {message: until for until, message in enumerate(held.read, 1)}
    count = next((n for n in range(len(messages), 0, -1) if messages[n - 1].id in place), 0)
    until = place[messages[count - 1].id] if count else 0
    both = min(count, until)
    on_path = messages[count - both : count]
    if [message.id for message in on_path] != held.read[until - both : until]:
        return 0, 0
    changed = [n for n, m in enumerate(on_path) if held.texts.get(m.id, hash(m.text)) != hash(m.text)]
    same = changed[0] if changed else both
    return (count - both + same, until - both + same) if same else (0, 0)
