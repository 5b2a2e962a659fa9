"""One turn from end to end: recall, prompt, answer, journal, citations. It knows no terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from app.chat_prompt import ChatPrompt, asked_before, chat_prompt
from app.events import (
    AnswerDelta,
    AnswerDone,
    Event,
    Listener,
    MessageAdded,
    Notice,
    PromptProgress,
    RecallShown,
    Severity,
    WindowChanged,
)
from app.host import wire
from app.host.host import Host
from app.host.recall_room import most_recalled
from app.host.sampling import FinishReason
from app.host.stream import ChildDiedError, HostError, Stream
from app.ids import ChatId, DocumentId
from app.store.store import Store, StoreError
from app.store.types import Figures, Message, MessageStatus
from app.turn_options import TurnOptions

JOURNAL_SECONDS = 0.2
"""What is on the screen is on the disk within a quarter of a second (design.md 4.2)."""
T = TypeVar("T")


class Conversation:
    """One turn of a chat. A stop counts from the moment that this is made, whatever the turn waits for."""

    def __init__(self, chat: ChatId, store: Store, host: Host, emit: Listener) -> None:
        self.chat = chat
        self._store, self._host, self._emit = store, host, emit
        self._stream: Stream | None = None
        self._waiting: asyncio.Future[Any] | None = None
        self._stopped = False

    async def wait(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do what the turn waits for; None when the turn is stopped, before or meanwhile."""
        self._waiting = task = asyncio.ensure_future(work)
        try:
            if self._stopped:
                task.cancel()
            await asyncio.wait({task})
        finally:
            self._waiting = None
            task.cancel()
        return None if self._stopped else task.result()

    def stop(self) -> None:
        """End the running answer; what there is of it stays."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self._stream is not None:
            self._stream.cancel()

    async def answer(self, question: Message, options: TurnOptions, documents: Sequence[DocumentId]) -> Message | None:
        """Answer a committed user message; `documents` are those dropped with it.

        Returns the answer, None when it was stopped before the first step or the disk refused to begin it. Every
        failure ends in a Notice and a stored message, never in an exception; what a broken disk does not store is
        told to the end all the same.
        """
        question = await self._recall(question, options, documents)
        if self._stopped:
            return None
        try:
            prompt = await self._prompt(question)
            begun = await asyncio.to_thread(self._store.begin_answer, self.chat, question.id)
        except StoreError as error:
            self._emit(Notice(f"The question was not answered: {error}", Severity.ERROR))
            return None
        self._emit(MessageAdded(self.chat, begun))
        request = wire.GenerateRequest(
            self.chat, options.system, prompt.messages, begun.id, options.sampling, prompt.pinned
        )
        written = _Written(begun)
        finished = await self._generate(request, written)
        return await self._finish(question, written, finished, options)

    async def _recall(self, question: Message, options: TurnOptions, documents: Sequence[DocumentId]) -> Message:
        """The question with what is recalled for it; as it is when there is nothing, or something fails."""
        if not options.recall_tokens or not self._host.memory.alive:
            return question
        try:
            return await self._recalled(question, options, documents)
        except (HostError, StoreError) as error:
            self._emit(Notice(f"Nothing was recalled for this question: {error}", Severity.WARNING))
            return question

    async def _recalled(self, question: Message, options: TurnOptions, documents: Sequence[DocumentId]) -> Message:
        prepared = await self._prepared(question, options)
        if prepared is None:
            return question
        path = await asyncio.to_thread(self._store.path, self.chat)
        known = await asyncio.to_thread(self._store.chat_documents, self.chat)
        bases = await asyncio.to_thread(self._store.bases_of, self.chat)
        visible = (*prepared.whole, question.id)
        with_block = [m for m in path if m.id in visible and m.role is wire.Role.USER and not m.pinned]
        request = wire.RecallRequest(
            question=question.text,
            chat=self.chat,
            visible=visible,
            delivered=tuple(p.id for m in with_block for p in m.passages),
            path=tuple(message.id for message in path),
            attached=tuple(documents),
            chat_documents=known,
            earlier=asked_before(path, question),
            budget_tokens=min(options.recall_tokens, most_recalled(prepared.ring_tokens)),
            tokenizer_file=options.tokenizer_file,
            bases=tuple(path for base in bases for path in base.paths),
            asked=question.created,
        )
        recalled = await self.wait(self._host.recall(request))
        if recalled is None:
            return question
        if recalled.block:
            question = await asyncio.to_thread(self._store.set_recall, question.id, recalled.block, recalled.passages)
        self._emit(
            RecallShown(self.chat, question.id, recalled.scope, recalled.reason, recalled.passages, recalled.seconds)
        )
        return question

    async def _prepared(self, question: Message, options: TurnOptions) -> wire.Prepared | None:
        """The window that the question will meet; None when the engine cannot say. The answer will meet the same fault
        then, and tell it."""
        prompt = await self._prompt(question)
        *earlier, asked = prompt.messages
        request = wire.PrepareRequest(
            self.chat, options.system, tuple(earlier), asked.text, options.recall_tokens, prompt.pinned
        )
        try:
            return await self._host.prepare(request)
        except HostError:
            return None

    async def _prompt(self, question: Message) -> ChatPrompt:
        """The chat up to `question`, which is no part of the window's beginning, pinned or not."""
        prompt = await asyncio.to_thread(chat_prompt, self._store, self.chat)
        return replace(prompt, pinned=tuple(message for message in prompt.pinned if message.id != question.id))

    async def _generate(self, request: wire.GenerateRequest, written: _Written) -> wire.Finished | None:
        """Stream the answer into `written`; None when the engine failed on the way (a Notice has said why)."""
        journal = asyncio.create_task(self._journal(written))
        try:
            self._stream = self._host.generate(request)
            if self._stopped:
                self._stream.cancel()
            async for event in self._stream:
                if isinstance(event, wire.Finished):
                    return event
                self._hear(event, written)
        except ChildDiedError:
            pass  # the start-up watches the children: it has told what died and what comes of it
        except HostError as error:
            self._emit(Notice(f"The answer ended early: {error}", Severity.ERROR))
        finally:
            self._stream = None
            journal.cancel()
            with suppress(asyncio.CancelledError):
                await journal
        return None

    def _hear(self, event: wire.EngineEvent, written: _Written) -> None:
        told: Event | None = None
        match event:
            case wire.Delta(text):
                written.text += text
                told = AnswerDelta(self.chat, written.begun.id, text)
            case wire.PrefillProgress(done, total):
                told = PromptProgress(self.chat, done, total)
            case wire.WindowView():
                told = WindowChanged(self.chat, event)
        if told is not None:
            self._emit(told)

    async def _journal(self, written: _Written) -> None:
        """Keep up with `written` on the disk. What the disk refuses is told once and tried again: it may be full, or
        the chats locked by another program, for no more than a moment of a long answer."""
        saved, told = "", False
        while True:
            await asyncio.sleep(JOURNAL_SECONDS)
            text = written.text
            if text == saved:
                continue
            try:
                await asyncio.to_thread(self._store.journal_answer, written.begun.id, text)
                saved = text
            except StoreError as error:
                if not told:
                    self._emit(Notice(f"The answer goes on, but not on the disk yet: {error}", Severity.WARNING))
                told = True

    async def _finish(
        self, question: Message, written: _Written, finished: wire.Finished | None, options: TurnOptions
    ) -> Message:
        text, labels = written.text, tuple[str, ...]()
        # JSON is left as it is: its [1] is a list and no citation.
        if question.passages and text and self._host.memory.alive and options.sampling.constraint is None:
            text, labels = await self._cite(question, text)
        ended = replace(
            written.begun,
            text=text,
            status=_status(finished),
            passages=question.passages,
            citations=labels,
            figures=None if finished is None else _figures(finished, options.model),
        )
        try:
            ended = await asyncio.to_thread(self._store_ended, ended)
        except StoreError as error:
            told = f"The answer is not whole on the disk, copy what you need of it: {error}"
            self._emit(Notice(told, Severity.ERROR))
        self._emit(AnswerDone(self.chat, ended))
        return ended

    def _store_ended(self, ended: Message) -> Message:
        return self._store.finish_answer(
            ended.id,
            ended.text,
            ended.status,
            passages=ended.passages,
            citations=ended.citations,
            figures=ended.figures,
        )

    async def _cite(self, question: Message, text: str) -> tuple[str, tuple[str, ...]]:
        try:
            cited = await self._host.cite(wire.CiteRequest(question.text, text, question.passages))
        except HostError as error:
            self._emit(Notice(f"The answer's sources were not checked: {error}", Severity.WARNING))
            return text, ()
        return cited.answer, cited.labels


@dataclass(slots=True)
class _Written:
    """An answer so far: as it was begun in the store, and the text that came since."""

    begun: Message
    text: str = ""


def _figures(finished: wire.Finished, model: str) -> Figures:
    return Figures(
        finished.prompt_tokens, finished.new_tokens, finished.prefill_seconds, finished.decode_seconds, model
    )


def _status(finished: wire.Finished | None) -> MessageStatus:
    return MessageStatus.FAILED if finished is None else _STATUS[finished.reason]


_STATUS = {
    FinishReason.STOP: MessageStatus.COMPLETE,
    FinishReason.LENGTH: MessageStatus.COMPLETE,
    FinishReason.CANCELLED: MessageStatus.STOPPED,
    FinishReason.LOOP: MessageStatus.LOOPED,
    FinishReason.BLOCKED: MessageStatus.BLOCKED,
}
