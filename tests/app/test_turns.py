"""Turns: what waits, what goes on and what stays, whatever ends a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.conversation import Conversation
from app.events import Event, Notice, QueueChanged, TurnsOver
from app.ids import ChatId
from app.outgoing import Outgoing, OutgoingQueues
from app.paths import PathsError
from app.ports import DeskError
from app.store.store import StoreError
from app.turns import Turns

CHAT = ChatId("c1")


class ScriptedConversation(Conversation):
    """Answers when the test says so."""

    answered: list[str]
    running: asyncio.Event
    may_end: asyncio.Event

    def stop(self) -> None:
        super().stop()
        self.may_end.set()

    async def answer(self, question: str, *_: object) -> None:
        self.running.set()
        await self.may_end.wait()
        self.answered.append(question)


class Disk:
    """A store that takes messages while it has room."""

    def __init__(self) -> None:
        self.full = False
        self.texts: list[str] = []

    def add_user_message(self, _chat: ChatId, text: str, **_: object) -> str:
        if self.full:
            raise StoreError("The disk is full; free some space and try again.")
        self.texts.append(text)
        return text


class Models:
    """A model that is there once `up` is set, or fails."""

    def __init__(self) -> None:
        self.up, self.asked = asyncio.Event(), asyncio.Event()
        self.failure: str | None = None

    async def ready_to_answer(self) -> None:
        self.asked.set()
        await self.up.wait()
        if self.failure:
            raise DeskError(self.failure)

    def turn_options(self) -> None:
        return None


class Indexer:
    """Nothing to read."""

    def wake(self) -> None:
        """Nothing to wake."""

    async def documents(self, _: object) -> tuple[()]:
        return ()


class Bench:
    """Turns between scripted neighbours."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk, self.models, self.told = Disk(), Models(), list[Event]()
        self.queues = OutgoingQueues()
        self.queues.mirror(folder / "queue.json")
        ScriptedConversation.answered = self.answered = []
        ScriptedConversation.running = self.running = asyncio.Event()
        ScriptedConversation.may_end = self.may_end = asyncio.Event()
        monkeypatch.setattr("app.turns.Conversation", ScriptedConversation)
        self.turns = Turns(self.disk, None, Indexer(), self.queues, self.models, self.told.append)  # type: ignore[arg-type]

    async def send(self, *texts: str) -> None:
        async def begin() -> None:
            return None

        for text in texts:
            await self.turns.send(CHAT, Outgoing(text), begin)

    @property
    def notices(self) -> list[str]:
        return [e.text for e in self.told if isinstance(e, Notice)]


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


async def test_what_a_full_disk_refuses_waits_in_order_and_goes_out_later(bench: Bench) -> None:
    bench.models.up.set()
    bench.may_end.set()
    bench.disk.full = True
    await bench.send("one", "two")
    await bench.turns.settled(CHAT)
    assert bench.queues.texts(CHAT) == ("one", "two")
    assert bench.told[-1] == TurnsOver(CHAT)
    assert [e.texts for e in bench.told if isinstance(e, QueueChanged)][-1] == ("one", "two")
    assert bench.notices[0] == "The disk is full; free some space and try again."
    bench.disk.full = False
    await bench.send("three")
    await bench.turns.settled(CHAT)
    assert bench.answered == ["one", "two", "three"]


async def test_a_queue_that_cannot_be_mirrored_costs_a_sentence_and_no_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise PathsError("queue.json cannot be written: the disk is full.")

    monkeypatch.setattr(bench.queues, "save", full)
    bench.models.up.set()
    bench.may_end.set()
    await bench.send("one", "two")
    await bench.turns.settled(CHAT)
    assert bench.answered == ["one", "two"]
    assert all("cannot be written" in text for text in bench.notices)
    assert bench.notices


async def test_a_question_stopped_before_its_answer_lets_the_next_one_through(bench: Bench) -> None:
    await bench.send("one", "two")
    await bench.models.asked.wait()
    assert await bench.turns.stop(CHAT)
    bench.models.up.set()
    await bench.turns.settled(CHAT)
    assert bench.disk.texts == ["one", "two"]
    assert bench.answered == ["two"]
    assert bench.told[-1] == TurnsOver(CHAT)


@pytest.mark.parametrize("place", ["disk.add_user_message", "queues.save"])
async def test_a_stop_while_the_disk_takes_the_question_is_not_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    loop, stopped = asyncio.get_running_loop(), list[bool]()
    owner, name = place.split(".")
    write = getattr(getattr(bench, owner), name)

    def stopped_meanwhile(*args: object, **kwargs: object) -> object:
        if not stopped:
            stopped.append(asyncio.run_coroutine_threadsafe(bench.turns.stop(CHAT), loop).result(60))
        return write(*args, **kwargs)

    monkeypatch.setattr(getattr(bench, owner), name, stopped_meanwhile)
    bench.models.up.set()
    bench.may_end.set()
    for text in ("one", "two"):
        bench.queues.put(CHAT, Outgoing(text))
    bench.turns.resume(CHAT)
    await bench.turns.settled(CHAT)
    assert stopped == [True]
    assert bench.disk.texts == ["one", "two"]
    assert bench.answered == ["two"]


async def test_a_stop_before_a_new_chat_is_stored_is_not_forgotten(bench: Bench) -> None:
    stopped = list[bool]()

    async def begin() -> None:
        stopped.append(await bench.turns.stop(CHAT))

    bench.models.up.set()
    bench.may_end.set()
    for text in ("one", "two"):
        await bench.turns.send(CHAT, Outgoing(text), begin)
    await bench.turns.settled(CHAT)
    assert stopped[0]
    assert bench.disk.texts == ["one", "two"]
    assert "one" not in bench.answered
    assert not await bench.turns.stop(CHAT)


async def test_closing_keeps_what_waits_for_the_next_start(bench: Bench, tmp_path: Path) -> None:
    bench.models.up.set()
    await bench.send("one", "two", "three")
    await bench.running.wait()
    await bench.turns.close()
    assert bench.answered == ["one"]
    later = OutgoingQueues()
    later.mirror(tmp_path / "queue.json")
    assert later.texts(CHAT) == ("two", "three")


async def test_a_model_that_failed_is_said_and_the_turns_are_over(bench: Bench) -> None:
    bench.models.failure = "There is no network."
    bench.models.up.set()
    await bench.send("one")
    await bench.turns.settled(CHAT)
    assert bench.notices == ["There is no network."]
    assert bench.told[-1] == TurnsOver(CHAT)


async def test_what_an_earlier_run_left_is_answered_when_its_chat_is_opened(bench: Bench) -> None:
    bench.models.up.set()
    bench.may_end.set()
    bench.turns.resume(CHAT)
    await bench.turns.settled(CHAT)
    assert bench.told == []
    for text in ("one", "two"):
        bench.queues.put(CHAT, Outgoing(text))
    bench.turns.resume(CHAT)
    bench.turns.resume(CHAT)
    await bench.turns.settled(CHAT)
    assert bench.answered == ["one", "two"]
