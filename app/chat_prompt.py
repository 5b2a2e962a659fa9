"""A chat exactly as the model reads it, from the store. Everything here blocks: call it off the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.host.wire import PromptMessage, Role
from app.ids import ChatId
from app.prompt import prompt_message
from app.store.store import Store
from app.store.types import Message

PATH_MESSAGES = 200
"""How much of a chat's path goes to the engine with a question: more than any window holds of it."""

EARLIER_QUESTIONS = 12
"""Questions that recall hears of with a new one."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The tail of a chat's path, and the messages of all of it that stay in the window; both oldest first. What was
    recalled for a pinned message is not pinned with it."""

    messages: tuple[PromptMessage, ...]
    pinned: tuple[PromptMessage, ...]


def chat_prompt(store: Store, chat: ChatId, pinned: Sequence[Message] | None = None) -> ChatPrompt:
    """The chat with the messages `pinned` to its window; None for those that the store says."""
    pinned = store.pinned(chat) if pinned is None else pinned
    alone = [replace(message, block="") for message in pinned]
    return ChatPrompt(_read(store, store.path(chat, PATH_MESSAGES)), _read(store, alone))


def asked_before(path: Sequence[Message], question: Message | None) -> tuple[str, ...]:
    """The last questions of a chat's path, oldest first, without `question` itself: what recall must know for the
    meaning of "it". The memory may not have read them yet."""
    asked = [m.text for m in path if m.role is Role.USER and (question is None or m.id != question.id)]
    return tuple(asked[-EARLIER_QUESTIONS:])


def _read(store: Store, messages: Sequence[Message]) -> tuple[PromptMessage, ...]:
    """The prompt forms of messages, but for answers without a word."""
    said = [message for message in messages if message.text or message.role is not Role.ASSISTANT]
    return tuple(prompt_message(m, store.message(m.quote) if m.quote else None) for m in said)
