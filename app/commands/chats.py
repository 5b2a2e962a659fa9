"""`aios-chat chats`, `favorites`, `pinned` and `export`: what is stored, without any model."""

from __future__ import annotations

import time

from app.commands.session import Progress, as_json, counted, opened
from app.settings import Settings
from app.store.types import Message


async def chats(settings: Settings, *, json: bool) -> int:
    """List all chats, most recently used first."""
    async with opened(settings, Progress(True)) as desk:
        rows = await desk.chats()
    if json:
        print(as_json(rows))
    for chat in rows if not json else ():
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(chat.updated))
        print(f"{chat.id}  {when}  {counted(chat.messages, 'message'):>13}  {chat.title or 'untitled'}")
    return 0


async def favorites(settings: Settings, *, json: bool) -> int:
    """List starred messages, the last starred first."""
    async with opened(settings, Progress(True)) as desk:
        _show(await desk.favorites(), json)
    return 0


async def pinned(settings: Settings, given: str, *, json: bool) -> int:
    """List the messages that are pinned to a chat's window, oldest first. Raises DeskError for an unknown chat."""
    async with opened(settings, Progress(True)) as desk:
        _show(await desk.pinned((await desk.find_chat(given)).id), json)
    return 0


def _show(messages: list[Message], json: bool) -> None:
    if json:
        print(as_json(messages))
    for message in messages if not json else ():
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(message.created))
        print(f"{message.chat}  {when}  {message.role.value}\n   {' '.join(message.text.split())}")


async def export(settings: Settings, given: str, *, json: bool) -> int:
    """Print a chat as Markdown or JSON. Raises DeskError for an unknown chat."""
    async with opened(settings, Progress(True)) as desk:
        chat = await desk.find_chat(given)
        print(await (desk.export_json(chat.id) if json else desk.export(chat.id)))
    return 0
