"""A chat as a file for people (Markdown) or for programs (JSON)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from app.host.wire import Role
from app.ids import MessageId
from app.store.types import Chat, Message, MessageStatus

JSON_FORMAT = "aios-chat/1"
_NAMES = {Role.USER: "You", Role.ASSISTANT: "Assistant", Role.SYSTEM: "System"}
_NOTES = {
    MessageStatus.STREAMING: "still being written",
    MessageStatus.STOPPED: "stopped",
    MessageStatus.INTERRUPTED: "interrupted",
    MessageStatus.FAILED: "failed",
    MessageStatus.LOOPED: "ended because it was repeating itself",
    MessageStatus.BLOCKED: "ended because nothing was allowed to follow",
}


def to_markdown(chat: Chat, path: Sequence[Message], quoted: Mapping[MessageId, Message]) -> str:
    """The chat's path as Markdown: one heading a message, then its quote, files, text and cited sources."""
    parts = [f"# {' '.join(chat.title.split()) or 'Untitled chat'}"]
    for message in path:
        parts.append(_heading(message))
        quote = quoted.get(message.quote) if message.quote else None
        if quote is not None:
            parts.append("\n".join(f"> {line}".rstrip() for line in quote.text.splitlines()))
        parts.extend(f"- file: {attachment.name}" for attachment in message.attachments)
        if message.text:
            parts.append(message.text.rstrip())
        cited = [passage for passage in message.passages if passage.label in message.citations]
        if cited:
            parts.append("\n".join(["Sources:", *(f"- [{p.label}] {p.place()}" for p in cited)]))
    return "\n\n".join(parts) + "\n"


def _heading(message: Message) -> str:
    when = datetime.fromtimestamp(message.created).strftime("%Y-%m-%d %H:%M")
    extras = [_NOTES[message.status]] if message.status in _NOTES else []
    if message.starred:
        extras.append("★")
    if message.pinned:
        extras.append("pinned")
    return " · ".join([f"## {_NAMES[message.role]}", when, *extras])


def to_json(chat: Chat, path: Sequence[Message]) -> str:
    """The chat's path as JSON: `format`, `chat` and `messages`, with the field names of app.store.types."""
    document = {
        "format": JSON_FORMAT,
        "chat": dataclasses.asdict(chat),
        "messages": [dataclasses.asdict(message) for message in path],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
