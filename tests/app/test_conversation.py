"""A turn that is stopped at every place where it waits, and what recall may take of its window."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.conversation import Conversation, TurnOptions, _status
from app.events import Event, MessageAdded, Notice
from app.host import wire
from app.host.sampling import FinishReason, Sampling
from app.host.stream import CallFailedError
from app.ids import new_chat_id
from app.store.store import Store
from app.store.types import MessageStatus
from engine.events import FinishReason as EngineReason

OPTIONS = TurnOptions("tiny", "s", Sampling(0.0, 0, 1.0, 1, 8), 200, "tokenizer.json")


class Child:
    alive = True


class ScriptedHost:
    """A memory that thinks for ever, or fails; an engine that nobody should reach."""

    def __init__(self) -> None:
        self.engine, self.memory = Child(), Child()
        self.recalling = asyncio.Event()
        self.recall_ended = False
        self.failure: Exception | None = None
        self.unprepared: Exception | None = None
        self.ring_tokens = 1000
        self.asked: list[wire.RecallRequest] = []

    async def prepare(self, request: wire.PrepareRequest) -> wire.Prepared:
        if self.unprepared is not None:
            raise self.unprepared
        return wire.Prepared(tuple(message.id for message in request.messages), self.ring_tokens)

    async def recall(self, request: wire.RecallRequest) -> None:
        self.asked.append(request)
        self.recalling.set()
        try:
            if self.failure is not None:
                raise self.failure
            await asyncio.Event().wait()
        finally:
            self.recall_ended = True

    def generate(self, _: wire.GenerateRequest) -> None:
        raise CallFailedError("The engine was reached.", "EngineError")


@pytest.fixture
def store(tmp_path: Path):
    opened = Store.open(tmp_path / "chats.db")
    yield opened
    opened.close()


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


def test_every_end_that_the_engine_knows_has_a_status() -> None:
    """The child sends the engine's own value; the store keeps what it means to a person."""
    assert {reason.value for reason in FinishReason} == {reason.value for reason in EngineReason}
    told = {reason: _status(wire.Finished(reason, 1, 1, 0.1, 0.1)) for reason in FinishReason}
    assert told[FinishReason.LOOP] is MessageStatus.LOOPED
    assert told[FinishReason.BLOCKED] is MessageStatus.BLOCKED
    assert told[FinishReason.CANCELLED] is MessageStatus.STOPPED
    assert told[FinishReason.STOP] is told[FinishReason.LENGTH] is MessageStatus.COMPLETE
