"""`aios-chat memory forget`: a file, a chat or one message, found by what a person calls it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.commands.inventory import with_memory
from app.commands.session import Progress, counted, say
from app.desk import Desk
from app.host.inspection import SourceInfo
from app.host.wire import SourceKind
from app.ids import DocumentId, MessageId
from app.ports import DeskError
from app.settings import Settings
from app.store.types import Chat, Message

MOST_SHOWN = 60
"""Characters of a message in the question."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is to be forgotten, in words, and how that is done."""

    words: str
    forget: Callable[[Desk], Awaitable[None]]


async def forget(settings: Settings, given: str, *, yes: bool) -> int:
    """Forget one thing, after a question unless `yes`. Exit code 1 when the person says no. Raises DeskError, also
    when the memory could not forget it yet."""
    async with with_memory(settings, Progress(True)) as desk:
        await desk.indexed()
        found = await _find(desk, given)
        if not yes and not _agreed(found):
            say("nothing was forgotten")
            return 1
        await found.forget(desk)
        await desk.indexed()
        await desk.memory.forgotten()
    print(f"forgotten: {found.words}")
    return 0


def _agreed(found: _Found) -> bool:
    if not sys.stdin.isatty():
        raise DeskError(f"This would forget {found.words}: add --yes to do it without a question.")
    print(f"Forget {found.words}? This cannot be undone. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _find(desk: Desk, given: str) -> _Found:
    """A file or web page by id, name, path or address; a message by id; a chat by its title or a part of its id. Raises
    DeskError."""
    documents = [source for source in await desk.memory.sources() if source.kind is not SourceKind.CHAT]
    copies = {str(document.id): document.also for document in await desk.documents()}
    named = [d for d in documents if d.id == given] or [d for d in documents if given in _names(d, copies)]
    if len(named) > 1:
        some = ", ".join(f"{d.id} ({d.origin})" for d in named[:3])
        raise DeskError(f"{given!r} fits {len(named)} files: give the id of one, such as {some}.")
    if named:
        return _document(named[0], copies.get(str(named[0].id), ()))
    message = await desk.memory.find_message(MessageId(given))
    if message is not None:
        return _message(message)
    chat = await desk.memory.find_chat(given)
    if chat is None:
        raise DeskError(f"There is no file, chat or message {given!r}: aios-chat memory list shows what there is.")
    return _chat(chat)


def _names(source: SourceInfo, copies: Mapping[str, Sequence[str]]) -> set[str]:
    """What a document may be called: its name and path, and those of its copies."""
    also = copies.get(str(source.id), ())
    return {source.title, source.origin, *also, *(Path(path).name for path in also)}


def _document(source: SourceInfo, also: Sequence[str]) -> _Found:
    what = "file" if source.kind is SourceKind.DOCUMENT else "web page"
    same = f", the same as {', '.join(also)}," if also else ""
    words = f"the {what} {source.title}{same} ({counted(source.passages, 'passage')})"
    return _Found(words, lambda desk: desk.memory.forget_document(DocumentId(source.id)))


def _message(message: Message) -> _Found:
    line = " ".join(message.text.split())
    words = f"the message “{line if len(line) <= MOST_SHOWN else line[:MOST_SHOWN] + '…'}”"
    return _Found(words, lambda desk: desk.memory.forget_message(message.id))


def _chat(chat: Chat) -> _Found:
    words = f"the chat “{chat.title or 'untitled'}” ({counted(chat.messages, 'message')})"
    return _Found(words, lambda desk: desk.delete(chat.id))
