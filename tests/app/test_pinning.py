"""Pins that come quickly, and readings that cannot be done; a real store, and the engine in its own process."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.events import Event, WindowChanged
from app.host.host import Host
from app.host.stream import CallFailedError, ChildDiedError, HostError, Stream
from app.host.wire import EngineOptions, ReadRequest
from app.ids import MessageId
from app.pinning import Pinning
from app.ports import DeskError
from app.store.store import Store, StoreError
from tests.engine.tiny import write_llama

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAID = ("the gate is green", "the door is blue", "the wall is white")


class RecordingHost(Host):
    """The host, and what was read through it."""

    def __init__(self, logs: Path) -> None:
        super().__init__(logs, lambda *_: None, lambda *_: None, lambda *_: None)
        self.asked: list[list[MessageId]] = []
        """The pinned messages of every reading."""
        self.failure: Exception | None = None
        self.reading = asyncio.Event()

    def read(self, request: ReadRequest) -> Stream:
        """Note it; fail when the test says so."""
        self.asked.append([message.id for message in request.pinned])
        if self.failure is not None:
            raise self.failure
        stream = super().read(request)
        self.reading.set()
        return stream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RecordingHost]:
    folder = tmp_path_factory.mktemp("pinning")
    write_llama(folder / "tiny")
    host = RecordingHost(folder / "logs")
    options = EngineOptions(
        model=str(folder / "tiny"),
        quota_tokens=512,
        page_size=16,
        kv_format="auto",
        policy="round-robin",
        sessions=2,
        device="cpu",
        threads=1,
        tokenizer_file=str(folder / "tokenizer.json"),
        host_bytes=0,
        guess_tokens=0,
    )
    await host.start_engine(options, lambda _: None)
    yield host
    await host.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "chats.db")
    yield opened
    opened.close()


class Case:
    """A chat of three messages, what pins them, and what was told of it."""

    def __init__(self, store: Store, host: Host) -> None:
        self.store = store
        self.told: list[Event] = []
        self.pinning = Pinning(store, host, self._hear)
        self.chat = store.create_chat("c").id
        self.messages = [store.add_user_message(self.chat, text).id for text in SAID]
        self._news = asyncio.Event()

    def _hear(self, event: Event) -> None:
        self.told.append(event)
        self._news.set()

    async def pin(self, number: int) -> None:
        await self.pinning.pin(self.chat, self.messages[number], "s")

    async def unpin(self, number: int) -> None:
        await self.pinning.unpin(self.chat, self.messages[number], "s")

    async def until_in_the_window(self, *numbers: int) -> None:
        """Wait until exactly these messages are told as pinned and read."""
        expected = [self.messages[number] for number in numbers]
        async with asyncio.timeout(60):
            while self.in_the_window() != expected:
                self._news.clear()
                await self._news.wait()

    def in_the_window(self) -> list[MessageId | None] | None:
        """The pinned messages of the window that was told last."""
        told = [event.window for event in self.told if isinstance(event, WindowChanged)]
        return [s.message for s in told[-1].segments if s.pinned and s.visible_tokens] if told else None


@pytest_asyncio.fixture(loop_scope="module")
async def case(store: Store, host: RecordingHost) -> AsyncIterator[Case]:
    host.failure = None
    host.asked.clear()
    host.reading.clear()
    case = Case(store, host)
    yield case
    await case.pinning.close()


async def readings_of(pinning: Pinning) -> None:
    """Wait until every reading has ended."""
    while pinning._reading:
        await asyncio.wait(pinning._reading)
        await asyncio.sleep(0)


class Complaints:
    """What the loop says of tasks that nobody looked at."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: self.heard.append(context))

    async def after(self, pinning: Pinning) -> list[dict[str, Any]]:
        """All of them once every reading has ended."""
        await readings_of(pinning)
        gc.collect()
        asyncio.get_running_loop().set_exception_handler(None)
        return self.heard


@contextmanager
def stopped(host: RecordingHost) -> Iterator[None]:
    """An engine that takes no call meanwhile."""
    engine = host.engine.pid
    assert engine is not None
    os.kill(engine, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine, signal.SIGCONT)


async def test_pins_that_come_at_once_know_of_each_other(case: Case, host: RecordingHost) -> None:
    await asyncio.gather(*(case.pin(number) for number in (2, 0, 1)))
    gate, door, wall = case.messages
    assert host.asked == [[wall], [gate, wall], [gate, door, wall]]
    await case.until_in_the_window(0, 1, 2)


async def test_a_reading_names_what_is_pinned_when_its_turn_comes(case: Case, host: RecordingHost) -> None:
    await case.pin(0)
    await asyncio.gather(case.unpin(0), case.pin(1), case.pin(2))
    await case.until_in_the_window(1, 2)
    pinned = [message.id for message in case.store.pinned(case.chat)]
    assert pinned == [case.messages[1], case.messages[2]]
    assert host.asked[-1] == pinned


@pytest.mark.parametrize("same_chat", [True, False])
async def test_unpinning_waits_for_no_pin_that_waits_for_the_engine(
    case: Case, host: RecordingHost, same_chat: bool
) -> None:
    gate, door, _ = case.messages
    chat = case.chat
    if not same_chat:
        chat = case.store.create_chat("d").id
        door = case.store.add_user_message(chat, SAID[1]).id
    case.store.pin(gate, True)
    with stopped(host):
        pinning = asyncio.create_task(case.pinning.pin(chat, door, "s"))
        await asyncio.wait_for(host.reading.wait(), 60)
        await asyncio.wait_for(case.unpin(0), 20)
        assert case.store.pinned(case.chat) == []
        assert not pinning.done()
    assert (await pinning).pinned
    await readings_of(case.pinning)
    assert host.asked == ([[gate, door], [door]] if same_chat else [[door], []])
    assert [message.id for message in case.store.pinned(chat)] == [door]


@pytest.mark.parametrize("same_chat", [True, False])
async def test_of_a_pin_and_an_unpin_of_one_message_the_last_word_counts(
    case: Case, host: RecordingHost, same_chat: bool
) -> None:
    chat = case.chat if same_chat else case.store.fork(case.chat, case.messages[-1]).id
    with stopped(host):
        pinning = asyncio.create_task(case.pin(0))
        await asyncio.wait_for(host.reading.wait(), 60)
        unpinning = asyncio.create_task(case.pinning.unpin(chat, case.messages[0], "s"))
        await asyncio.sleep(0)
    await asyncio.gather(pinning, unpinning)
    assert case.store.pinned(case.chat) == []


async def test_pins_of_two_chats_do_not_mix(store: Store, case: Case, host: RecordingHost) -> None:
    other = Case(store, host)
    await asyncio.gather(case.pin(0), other.pin(1), case.pin(2), other.pin(0))
    await case.until_in_the_window(0, 2)
    await other.until_in_the_window(0, 1)
    await other.pinning.close()


async def test_a_refused_pin_leaves_the_next_one_its_turn(case: Case) -> None:
    long = case.store.add_user_message(case.chat, "word " * 100).id
    refused, _ = await asyncio.gather(case.pinning.pin(case.chat, long, "s"), case.pin(1), return_exceptions=True)
    assert isinstance(refused, CallFailedError)
    assert "what is pinned takes" in str(refused)
    await case.until_in_the_window(1)
    with pytest.raises(DeskError, match="not on this chat's path"):
        await case.pinning.pin(case.chat, MessageId("never said"), "s")
    await case.pin(0)
    await case.until_in_the_window(0, 1)


async def test_a_pin_that_the_disk_refuses_is_told_and_no_later_reading_has_it(
    case: Case, host: RecordingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(case.store, "pin", full)
        with pytest.raises(StoreError, match="full"):
            await case.pin(0)
    await case.pin(1)
    assert host.asked[-1] == [case.messages[1]]
    await case.until_in_the_window(1)


@pytest.mark.parametrize(
    "failure",
    [ChildDiedError("The engine is not running."), CallFailedError("Too much.", "QuotaError"), DeskError("No engine.")],
)
async def test_a_reading_that_cannot_be_asked_for_ends_quietly(
    case: Case, host: RecordingHost, failure: Exception
) -> None:
    complaints = Complaints()
    case.store.pin(case.messages[0], True)
    host.failure = failure
    await case.unpin(0)
    assert await complaints.after(case.pinning) == []
    assert not case.store.pinned(case.chat)
    assert case.told == []


async def test_a_reading_of_a_chat_that_was_deleted_meanwhile_ends_quietly(case: Case, host: RecordingHost) -> None:
    complaints = Complaints()
    case.store.pin(case.messages[0], True)
    async with case.pinning._in_turn:  # the reading waits for its turn while the chat goes
        await asyncio.wait_for(case.unpin(0), 20)
        case.store.delete_chat(case.chat)
    assert await complaints.after(case.pinning) == []
    assert case.told == []


async def test_a_reading_that_the_store_cannot_serve_ends_quietly(case: Case, host: RecordingHost) -> None:
    complaints = Complaints()
    case.store.pin(case.messages[0], True)
    await case.unpin(0)
    case.store.close()
    assert await complaints.after(case.pinning) == []


async def test_without_an_engine_nothing_is_pinned_and_unpinning_goes_on(store: Store, tmp_path: Path) -> None:
    complaints = Complaints()
    case = Case(store, RecordingHost(tmp_path / "logs"))
    with pytest.raises(HostError, match="not running"):
        await case.pin(0)
    assert store.pinned(case.chat) == []
    store.pin(case.messages[1], True)
    await case.unpin(1)
    assert await complaints.after(case.pinning) == []
    assert store.pinned(case.chat) == []


async def test_an_engine_that_dies_while_it_reads_ends_the_reading_quietly(case: Case, host: RecordingHost) -> None:
    complaints = Complaints()
    case.store.pin(case.messages[0], True)
    engine = host.engine.pid
    assert engine is not None
    os.kill(engine, signal.SIGSTOP)  # so that the reading cannot be over before
    await case.unpin(0)
    await asyncio.wait_for(host.reading.wait(), 60)
    os.kill(engine, signal.SIGKILL)
    assert await complaints.after(case.pinning) == []
    assert case.told == []
