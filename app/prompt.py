"""The text of a message exactly as the model reads it. Pure, and made of stored rows only, so that a reopened chat
reads the same tokens as the one that never closed."""

from __future__ import annotations

from app.host.wire import PromptMessage, Role
from app.store.types import Message

MOST_QUOTED = 1000
"""Characters of a quoted message: a longer one would push the question it belongs to out of a small window."""


def prompt_message(message: Message, quoted: Message | None) -> PromptMessage:
    """The prompt form of a stored message; `quoted` is the past message that it quotes."""
    if message.role is not Role.USER:
        return PromptMessage(message.id, message.role, message.text)
    parts = [message.block] if message.block else []
    if quoted is not None:
        parts.append(_quote(quoted))
    parts.append(message.text)
    return PromptMessage(message.id, message.role, "\n\n".join(parts))


def _quote(quoted: Message) -> str:
    who = "You said earlier" if quoted.role is Role.ASSISTANT else "I said earlier"
    text = quoted.text.strip()
    if len(text) > MOST_QUOTED:
        text = text[:MOST_QUOTED] + " …"
    return f"{who}:\n> " + text.replace("\n", "\n> ")
