"""The memory as the screens and the command line reach it: search it, list it, explain it, rebuild it, forget from
it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from app.chat_prompt import asked_before
from app.digester import Digester
from app.drop.stage import unstage, unstage_content
from app.host.digests import KeptDigest
from app.host.documents import DocumentInfo
from app.host.host import Host
from app.host.inspection import MemorySize, SourceInfo, Why, WhyRequest
from app.host.stream import HostError
from app.host.web import KeepWeb
from app.host.wire import LoadProgress, Passage, RecallRequest, SearchRequest, SearchResult
from app.ids import ChatId, DocumentId, MessageId
from app.ports import DeskError
from app.store.bases import EVERYTHING
from app.store.store import Store, StoreError
from app.store.types import Attachment, Base, Chat, Message, OutboxKind
from app.web_search import WebSearchError, search_web

T = TypeVar("T")

WEB_DAYS = 7
"""How long what a web search found is kept: what is written there changes."""


class MemoryAccess:
    """Every method raises DeskError, one sentence; while the memory is not up, all but those that find or forget:
    what is forgotten then leaves the memory as soon as it is. `wake` tells that something is in the outbox."""

    def __init__(self, store: Store, host: Host, files: Path, wake: Callable[[], None]) -> None:
        self._store, self._host, self._files, self._wake = store, host, files, wake

    async def search(self, request: SearchRequest) -> SearchResult:
        """The passages that fit a query best."""
        with _told():
            return await self._host.search(request)

    async def documents(self) -> list[DocumentInfo]:
        """Everything ingested, newest first."""
        with _told():
            return list(await self._host.documents())

    async def sources(self) -> list[SourceInfo]:
        """Every chat and document, the one that was added last first."""
        with _told():
            return list(await self._host.sources())

    async def passages(self) -> AsyncIterator[tuple[Passage, ...]]:
        """Every passage, some at a time."""
        with _told():
            async with self._host.passages() as stream:
                async for some in stream:
                    if isinstance(some, tuple):
                        yield some

    async def size(self) -> MemorySize:
        """How much the memory holds."""
        with _told():
            return await self._host.measure_memory()

    async def why(self, question: str, chat: ChatId | None, budget_tokens: int, tokenizer_file: str) -> Why:
        """What recall does for a question that is asked in `chat` (None: in a new one) when everything said there has
        left the window."""
        path = await self._call(lambda: self._store.path(chat)) if chat is not None else []
        known = await self._call(lambda: self._store.chat_documents(chat)) if chat is not None else ()
        bases = await self._call(lambda: self._store.bases_of(chat)) if chat is not None else ()
        request = RecallRequest(
            question=question,
            chat=chat or ChatId(""),
            visible=(),
            delivered=(),
            path=tuple(message.id for message in path),
            attached=(),
            chat_documents=known,
            earlier=asked_before(path, None),
            budget_tokens=budget_tokens,
            tokenizer_file=tokenizer_file,
            bases=tuple(path for base in bases for path in base.paths),
        )
        with _told():
            return await self._host.why(WhyRequest(request))

    async def rebuild(self) -> AsyncIterator[LoadProgress]:
        """Make the indexes anew; tells how far it is, at last with everything done."""
        with _told():
            async with self._host.rebuild() as stream:
                async for event in stream:
                    if isinstance(event, LoadProgress):
                        yield event

    async def digests(self, digester: Digester) -> AsyncIterator[KeptDigest]:
        """Have everything summed up that has left the windows, one digest after the other."""
        with _told():
            while (kept := await digester.next()) is not None:
                yield kept

    async def search_web(self, engine: str, question: str) -> tuple[Attachment, ...]:
        """What a search engine finds for a question, in the memory for a while, to go with the question as files do."""
        with _told():
            results = await asyncio.to_thread(search_web, engine, question)
            documents = await self._host.keep_web(KeepWeb(results, WEB_DAYS * 86_400.0))
        found = zip(results, documents, strict=True)
        return tuple(Attachment(result.title or result.url, result.url, result.url, known) for result, known in found)

    async def bases(self) -> list[Base]:
        """Every knowledge base, by name."""
        return await self._call(self._store.bases)

    async def add_to_base(self, name: str, paths: Sequence[Path]) -> Base:
        """Put folders and files into a knowledge base, made when there is none of that name. Their documents are in it
        as soon as they are read."""
        return await self._call(lambda: self._store.add_to_base(name, [str(path.absolute()) for path in paths]))

    async def remove_base(self, name: str) -> Base:
        """Dissolve a knowledge base; what was read stays."""
        return await self._call(lambda: self._store.remove_base(name))

    async def choose_bases(self, chat: ChatId, names: Sequence[str]) -> tuple[Base, ...]:
        """Have a stored chat search these bases and the chats; everything for none, or for "all"."""
        wanted = [name for name in names if name.casefold() != EVERYTHING]
        return await self._call(lambda: self._store.choose_bases(chat, wanted))

    async def bases_of(self, chat: ChatId) -> tuple[Base, ...]:
        """The bases that a chat searches; none when it searches everything."""
        return await self._call(lambda: self._store.bases_of(chat))

    async def find_chat(self, given: str) -> Chat | None:
        """The chat that a person means by an id, a part of it, or a title."""
        return await self._call(lambda: self._store.find_chat(given))

    async def find_message(self, message: MessageId) -> Message | None:
        """A message by its id."""
        return await self._call(lambda: self._store.message(message))

    async def forget_message(self, message: MessageId) -> None:
        """Take a message's words out of its chat, and have the memory forget it."""
        await self._call(lambda: self._store.forget_message(message))
        self._wake()

    async def forget_document(self, document: DocumentId) -> None:
        """Detach a document everywhere, remove its copies, and have the memory forget it."""
        for staged in await self._call(lambda: self._store.delete_document(document)):
            await asyncio.to_thread(unstage, staged, self._files)
        # A file that was read outside any chat is attached to no message; a document's id is the SHA-256 of its bytes.
        await asyncio.to_thread(unstage_content, document, self._files)
        self._wake()

    async def forgotten(self) -> None:
        """Make sure that nothing more is there of what was to be forgotten (wait with `indexed` before). Raises
        DeskError with the reason when it is."""
        why = await self._call(self._store.scrub)
        for item in await self._call(lambda: self._store.kept(OutboxKind.FORGET)):
            why = why or item.error or "the memory was not asked."
        if why:
            raise DeskError(f"Not everything is forgotten yet, aios-chat tries again at its next start: {why}")

    async def _call(self, work: Callable[[], T]) -> T:
        with _told():
            return await asyncio.to_thread(work)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (HostError, StoreError, WebSearchError) as error:
        raise DeskError(str(error)) from error
