"""A turn that is stopped at every place where it waits, and what recall may take of its window."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from app.conversation import Conversation, _status
from app.events import AnswerDone, Event, MessageAdded, Notice, Severity
from app.host import wire
from app.host.sampling import FinishReason, Sampling
from app.host.stream import CallFailedError
from app.ids import MessageId, new_chat_id
from app.store.db import Database
from app.store.store import Store, StoreError
from app.store.types import MessageStatus
from app.turn_options import TurnOptions
from engine.events import FinishReason as EngineReason

OPTIONS = TurnOptions("tiny", "s", Sampling(0.0, 0, 1.0, 1, 8), 200, "tokenizer.json")

DONE = wire.Finished(FinishReason.STOP, 1, 2, 0.1, 0.1)


class Child:
    alive = True


class ScriptedAnswer:
    """An answer whose events are written as a generator."""

    def __init__(self, events: AsyncIterator[wire.EngineEvent]) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[wire.EngineEvent]:
        return self._events


class ScriptedHost:
    """A memory that thinks for ever, fails or recalls a line; an engine that nobody should reach, or that answers."""

    def __init__(self) -> None:
        self.engine, self.memory = Child(), Child()
        self.recalling = asyncio.Event()
        self.recall_ended = False
        self.failure: Exception | None = None
        self.recalled: wire.Recalled | None = None
        self.answer: Callable[[wire.GenerateRequest], AsyncIterator[wire.EngineEvent]] | None = None
        self.unprepared: Exception | None = None
        self.ring_tokens = 1000
        self.asked: list[wire.RecallRequest] = []

    async def prepare(self, request: wire.PrepareRequest) -> wire.Prepared:
        if self.unprepared is not None:
            raise self.unprepared
        return wire.Prepared(tuple(message.id for message in request.messages), self.ring_tokens)

    async def recall(self, request: wire.RecallRequest) -> wire.Recalled:
        self.asked.append(request)
        self.recalling.set()
        try:
            if self.failure is not None:
                raise self.failure
            if self.recalled is None:
                await asyncio.Event().wait()
            return self.recalled
        finally:
            self.recall_ended = True

    def generate(self, request: wire.GenerateRequest) -> ScriptedAnswer:
        if self.answer is None:
            raise CallFailedError("The engine was reached.", "EngineError")
        return ScriptedAnswer(self.answer(request))


@pytest.fixture
def store(tmp_path: Path):
    opened = Store.open(tmp_path / "chats.db")
    yield opened
    opened.close()


class CountingDatabase:
    """A database whose disk refuses one transaction, by its number."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.seen = self.refused = 0

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        self._count()
        return self._database.read()

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        self._count()
        return self._database.write()

    def close(self) -> None:
        self._database.close()

    def _count(self) -> None:
        self.seen += 1
        if self.seen == self.refused:
            raise StoreError("The disk is full.")


async def one_two(_: wire.GenerateRequest) -> AsyncIterator[wire.EngineEvent]:
    yield wire.Delta("one")
    yield wire.Delta(" two")
    yield DONE


async def begun(store: Store, host: ScriptedHost, told: list[Event]) -> tuple[Conversation, object]:
    chat = new_chat_id()
    store.create_chat(id=chat)
    question = store.add_user_message(chat, "Where is the key?")
    conversation = Conversation(chat, store, host, told.append)  # type: ignore[arg-type]
    assert await conversation.wait(asyncio.sleep(0, "ready")) == "ready"
    return conversation, question


async def test_stop_ends_a_recall_that_takes_long(store: Store) -> None:
    host, told = ScriptedHost(), list[Event]()
    conversation, question = await begun(store, host, told)
    answering = asyncio.create_task(conversation.answer(question, OPTIONS, ()))  # type: ignore[arg-type]
    await host.recalling.wait()
    conversation.stop()
    assert await answering is None
    assert host.recall_ended
    assert told == []


async def test_stop_before_the_work_begins_is_not_forgotten(store: Store) -> None:
    host, told = ScriptedHost(), list[Event]()
    conversation, question = await begun(store, host, told)
    conversation.stop()
    assert await conversation.answer(question, OPTIONS, ()) is None  # type: ignore[arg-type]
    assert not any(isinstance(event, MessageAdded) for event in told)


async def test_a_recall_that_fails_is_told_and_the_question_goes_on(store: Store) -> None:
    host, told = ScriptedHost(), list[Event]()
    host.failure = CallFailedError("The index is damaged.", "RecallError")
    conversation, question = await begun(store, host, told)
    answer = await conversation.answer(question, OPTIONS, ())  # type: ignore[arg-type]
    assert answer is not None
    said = [event.text for event in told if isinstance(event, Notice)]
    assert said == [
        "Nothing was recalled for this question: The index is damaged.",
        "The answer ended early: The engine was reached.",
    ]


@pytest.mark.parametrize(("ring", "budget"), [(1000, 200), (400, 200), (399, 199), (64, 32)])
async def test_recall_takes_at_most_half_of_the_ring(store: Store, ring: int, budget: int) -> None:
    host = ScriptedHost()
    host.failure, host.ring_tokens = CallFailedError("Nothing there.", "RecallError"), ring
    conversation, question = await begun(store, host, [])
    await conversation.answer(question, OPTIONS, ())  # type: ignore[arg-type]
    assert [request.budget_tokens for request in host.asked] == [budget]


async def test_an_engine_that_cannot_say_what_it_will_see_is_heard_once(store: Store) -> None:
    host, told = ScriptedHost(), list[Event]()
    host.unprepared = CallFailedError("Too much is pinned.", "QuotaError")
    conversation, question = await begun(store, host, told)
    assert await conversation.answer(question, OPTIONS, ()) is not None  # type: ignore[arg-type]
    assert host.asked == []
    assert [e.text for e in told if isinstance(e, Notice)] == ["The answer ended early: The engine was reached."]


async def test_a_journal_that_the_disk_refuses_for_a_moment_catches_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, told, tried = ScriptedHost(), list[Event](), asyncio.Queue[str]()
    host.memory.alive = False
    loop, journal, room = asyncio.get_running_loop(), store.journal_answer, threading.Event()

    def journal_answer(message: MessageId, text: str) -> bool:
        try:
            if not room.is_set():
                raise StoreError("The disk is full.")
            return journal(message, text)
        finally:
            loop.call_soon_threadsafe(tried.put_nowait, text)

    async def answer(request: wire.GenerateRequest) -> AsyncIterator[wire.EngineEvent]:
        yield wire.Delta("one")
        async with asyncio.timeout(20):
            assert [await tried.get(), await tried.get()] == ["one", "one"]
            room.set()
            yield wire.Delta(" two")
            while await tried.get() != "one two":
                pass
        kept = store.message(request.answer)
        assert kept is not None
        assert (kept.status, kept.text) == (MessageStatus.STREAMING, "one two")
        yield DONE

    monkeypatch.setattr(store, "journal_answer", journal_answer)
    host.answer = answer
    conversation, question = await begun(store, host, told)
    done = await conversation.answer(question, OPTIONS, ())  # type: ignore[arg-type]
    assert done is not None
    assert (done.status, done.text) == (MessageStatus.COMPLETE, "one two")
    assert store.message(done.id) == done
    assert told[-1] == AnswerDone(conversation.chat, done)
    assert [(e.text, e.severity) for e in told if isinstance(e, Notice)] == [
        ("The answer goes on, but not on the disk yet: The disk is full.", Severity.WARNING)
    ]


async def test_an_answer_that_cannot_be_journalled_at_all_is_stored_at_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, told, refused = ScriptedHost(), list[Event](), asyncio.Event()
    host.memory.alive = False
    loop = asyncio.get_running_loop()

    def full(*_: object) -> None:
        loop.call_soon_threadsafe(refused.set)
        raise StoreError("The disk is full.")

    async def answer(_: wire.GenerateRequest) -> AsyncIterator[wire.EngineEvent]:
        yield wire.Delta("one")
        await asyncio.wait_for(refused.wait(), 20)
        yield wire.Delta(" two")
        yield DONE

    monkeypatch.setattr(store, "journal_answer", full)
    host.answer = answer
    conversation, question = await begun(store, host, told)
    done = await conversation.answer(question, OPTIONS, ())  # type: ignore[arg-type]
    assert done is not None
    assert store.message(done.id) == done
    assert (done.status, done.text) == (MessageStatus.COMPLETE, "one two")


async def test_whatever_the_disk_refuses_in_a_turn_is_told_and_the_turn_comes_to_its_end(store: Store) -> None:
    """The first transaction of a turn is refused, then the second of another, until a turn has no more of them."""
    disk = CountingDatabase(store._database)
    store._database = disk  # type: ignore[assignment]
    for refused in itertools.count(1):
        host, told = ScriptedHost(), list[Event]()
        host.recalled = wire.Recalled("here", "why", "key", (), "What was recalled.", 4, 0.1)
        host.answer = one_two
        conversation, question = await begun(store, host, told)
        disk.seen, disk.refused = 0, refused
        done = await conversation.answer(question, OPTIONS, ())  # type: ignore[arg-type]
        disk.refused = 0
        notices = [event.text for event in told if isinstance(event, Notice)]
        ended = [event.message for event in told if isinstance(event, AnswerDone)]
        assert ended == ([] if done is None else [done])
        assert len(ended) == len([event for event in told if isinstance(event, MessageAdded)])
        if done is not None:
            assert (done.status, done.text) == (MessageStatus.COMPLETE, "one two")
        if disk.seen < refused:
            break
        assert len(notices) == 1
        assert notices[0].endswith(": The disk is full.")
    assert refused > 6
    assert notices == []
    assert done is not None
    assert store.message(done.id) == done


async def test_a_folder_that_takes_no_writer_is_told(store: Store, tmp_path: Path) -> None:
    (tmp_path / "writers").write_text("no folder")
    host, told = ScriptedHost(), list[Event]()
    host.memory.alive, host.answer = False, one_two
    conversation, question = await begun(store, host, told)
    assert await conversation.answer(question, OPTIONS, ()) is None  # type: ignore[arg-type]
    assert [e.text for e in told] == [f"The question was not answered: {tmp_path} cannot be opened: file exists."]


def test_every_end_that_the_engine_knows_has_a_status() -> None:
    """The child sends the engine's own value; the store keeps what it means to a person."""
    assert {reason.value for reason in FinishReason} == {reason.value for reason in EngineReason}
    told = {reason: _status(wire.Finished(reason, 1, 1, 0.1, 0.1)) for reason in FinishReason}
    assert told[FinishReason.LOOP] is MessageStatus.LOOPED
    assert told[FinishReason.BLOCKED] is MessageStatus.BLOCKED
    assert told[FinishReason.CANCELLED] is MessageStatus.STOPPED
    assert told[FinishReason.STOP] is told[FinishReason.LENGTH] is MessageStatus.COMPLETE
