"""The desk with its real children: a tiny random model in the engine, the real embedder in the memory."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from app.desk import Desk
from app.events import AnswerDelta, AnswerDone, Event, ModelPhase, Notice, QueueChanged, RecallShown, WindowChanged
from app.host.wire import Role, SourceKind
from app.ids import ChatId
from app.outgoing import Outgoing, OutgoingQueues
from app.paths import Paths
from app.ports import DeskError
from app.settings import load_settings
from app.store.types import Message, MessageStatus
from tests.engine.tiny import write_llama
from tests.models import embedder_folder, models_folder
from tests.processes import children_that_run

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Seen:
    """A desk and everything it told."""

    def __init__(self, desk: Desk, paths: Paths) -> None:
        self.desk, self.paths = desk, paths
        self.events: list[Event] = []
        self._news = asyncio.Event()
        desk.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for events until `true()`."""
        async with asyncio.timeout(120):
            while not true():
                self._news.clear()
                await self._news.wait()

    def of(self, kind: type, chat: ChatId) -> list:
        """Events of a kind in a chat."""
        return [e for e in self.events if isinstance(e, kind) and e.chat == chat]

    def child(self, module: str) -> psutil.Process:
        """The running child process of that module."""
        found = children_that_run(module)
        assert len(found) == 1
        return found[0]

    async def ask(self, chat: ChatId, text: str) -> Message:
        """Send, and wait for the answer."""
        done = len(self.of(AnswerDone, chat))
        await self.desk.send(chat, text)
        await self.until(lambda: len(self.of(AnswerDone, chat)) > done)
        await self.desk.settled(chat)
        return self.of(AnswerDone, chat)[-1].message


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seen]:
    embedder_folder()
    folder = tmp_path_factory.mktemp("desk")
    write_llama(folder / "tiny")
    paths = Paths(folder / "home", folder / "home" / "settings.toml")
    paths.data.mkdir()
    paths.models.symlink_to(models_folder())
    options = {"model": str(folder / "tiny"), "window_tokens": 1536, "threads": 1, "temperature": 1.0, "seed": 5}
    settings = load_settings(None, {**options, "max_tokens": 40, "system_prompt": "s"}, environ={})
    desk = Desk(settings, paths.create())
    seen = Seen(desk, paths)
    await desk.start()
    await desk.model_up()
    await desk.memory_up()
    yield seen
    await desk.close()
    assert not psutil.Process().children()


def files_with(folder: Path, word: bytes) -> list[Path]:
    """Files below a folder that hold a word."""
    return [file for file in folder.rglob("*") if file.is_file() and word in file.read_bytes()]


async def new_chat(seen: Seen) -> ChatId:
    return (await seen.desk.new_chat()).chat.id


async def new_stored_chat(seen: Seen) -> ChatId:
    chat = await new_chat(seen)
    await seen.ask(chat, "A beginning.")
    return chat


async def test_a_turn_is_stored_answered_and_remembered(seen: Seen) -> None:
    chat = await new_chat(seen)
    answer = await seen.ask(chat, "The walrus keeps a blue umbrella.")
    await seen.desk.indexed()
    view = await seen.desk.open_chat(chat)
    assert [m.role for m in view.messages] == [Role.USER, Role.ASSISTANT]
    assert view.messages[1] == answer
    assert answer.text == "".join(e.text for e in seen.of(AnswerDelta, chat))
    assert answer.figures is not None
    assert answer.figures.new_tokens > 0
    assert view.window is not None
    assert {s.message for s in view.window.segments} == {None, *(m.id for m in view.messages)}
    found = await seen.desk.search("umbrella of the walrus", kind=SourceKind.CHAT)
    assert found.passages[0].message == view.messages[0].id
    assert (await seen.desk.chats())[0].title == "The walrus keeps a blue umbrella."


async def test_questions_typed_meanwhile_wait_in_order(seen: Seen) -> None:
    chat = await new_chat(seen)
    for text in ("one", "two", "three", "four"):
        await seen.desk.send(chat, text)
    assert json.loads((seen.paths.data / "queue.json").read_text())
    assert await seen.desk.unqueue(chat) == "four"
    await seen.desk.settled(chat)
    messages = (await seen.desk.open_chat(chat)).messages
    assert [m.text for m in messages if m.role is Role.USER] == ["one", "two", "three"]
    assert all(m.role is Role.ASSISTANT for m in messages[1::2])
    assert seen.of(QueueChanged, chat)[-1].texts == ()
    assert not json.loads((seen.paths.data / "queue.json").read_text())


async def test_stop_keeps_the_partial_answer(seen: Seen) -> None:
    chat = await new_chat(seen)
    await seen.desk.send(chat, "Go on for ever.")
    await seen.until(lambda: bool(seen.of(AnswerDelta, chat)))
    assert await seen.desk.stop(chat)
    await seen.desk.settled(chat)
    stopped = (await seen.desk.open_chat(chat)).messages[-1]
    shown = "".join(e.text for e in seen.of(AnswerDelta, chat))
    assert stopped.status in (MessageStatus.STOPPED, MessageStatus.COMPLETE)
    assert stopped.text == shown != ""
    assert not await seen.desk.stop(chat)
    assert (await seen.ask(chat, "And now?")).status is MessageStatus.COMPLETE


async def test_a_fork_shares_the_past_and_goes_its_own_way(seen: Seen) -> None:
    chat = await new_chat(seen)
    await seen.ask(chat, "first")
    await seen.ask(chat, "second")
    path = (await seen.desk.open_chat(chat)).messages
    fork = await seen.desk.fork(chat, path[1].id)
    assert fork.messages == path[:2]
    await seen.ask(fork.chat.id, "another second")
    assert [m.text for m in (await seen.desk.open_chat(fork.chat.id)).messages][::2] == ["first", "another second"]
    assert (await seen.desk.open_chat(chat)).messages == path


async def test_what_is_told_of_the_window_never_exceeds_the_quota(seen: Seen) -> None:
    chat = await new_chat(seen)
    for number in range(20):
        await seen.ask(chat, f"Question number {number}: " + "word " * 20)
    windows = [e.window for e in seen.of(WindowChanged, chat)]
    assert windows[-1].evicted_tokens > 0
    assert {w.quota_bytes for w in windows} == {windows[0].quota_bytes}
    assert all(w.visible_tokens <= w.quota_tokens == 1536 for w in windows)
    assert all(w.position == w.visible_tokens + w.evicted_tokens for w in windows)
    first = (await seen.desk.open_chat(chat)).messages[0].id
    assert first not in {s.message for s in windows[-1].segments}


async def test_a_pinned_message_is_read_into_the_window_beside_everything_else(seen: Seen) -> None:
    chat = await new_chat(seen)
    await seen.ask(chat, "The gate is green.")
    await seen.ask(chat, "The door is blue.")
    gate, _, door, _ = (await seen.desk.open_chat(chat)).messages

    def pinned() -> list[str]:
        return [s.message for s in seen.of(WindowChanged, chat)[-1].window.segments if s.pinned and s.visible_tokens]

    assert (await seen.desk.pin(chat, door.id)).pinned
    await seen.until(lambda: pinned() == [door.id])
    assert (await seen.desk.pin(chat, gate.id)).pinned
    await seen.until(lambda: pinned() == [gate.id, door.id])
    window = seen.of(WindowChanged, chat)[-1].window
    assert window.visible_tokens == window.position
    assert window.pinned_tokens == sum(s.total_tokens for s in window.segments if s.pinned)
    await seen.ask(chat, "And the wall?")
    assert pinned() == [gate.id, door.id]
    assert [m.id for m in await seen.desk.pinned(chat)] == [gate.id, door.id]
    assert not (await seen.desk.unpin(chat, gate.id)).pinned
    await seen.until(lambda: pinned() == [door.id])


async def test_too_much_is_not_pinned_and_the_engine_says_why(seen: Seen) -> None:
    chat = await new_chat(seen)
    await seen.ask(chat, "word " * 170)
    long, answer = (await seen.desk.open_chat(chat)).messages
    with pytest.raises(DeskError, match="what is pinned takes 858 tokens; 768 are allowed of a window of 1536"):
        await seen.desk.pin(chat, long.id)
    assert await seen.desk.pinned(chat) == []
    with pytest.raises(DeskError, match="not on this chat's path"):
        await seen.desk.pin(await new_stored_chat(seen), answer.id)
    assert (await seen.ask(chat, "go on")).text


async def test_a_message_is_pinned_while_its_chat_answers(seen: Seen) -> None:
    chat = await new_chat(seen)
    first = await seen.ask(chat, "The gate is green.")
    answers = len(seen.of(AnswerDone, chat))
    await seen.desk.send(chat, "And the wall?")
    await seen.until(lambda: any(e.message != first.id for e in seen.of(AnswerDelta, chat)))
    assert (await seen.desk.pin(chat, first.id)).pinned
    await seen.desk.settled(chat)
    assert len(seen.of(AnswerDone, chat)) == answers + 1
    await seen.ask(chat, "And the roof?")
    segments = seen.of(WindowChanged, chat)[-1].window.segments
    assert [s.message for s in segments if s.pinned] == [first.id]


async def test_what_the_model_sees_is_not_recalled(seen: Seen) -> None:
    chat = await new_chat(seen)
    await seen.ask(chat, "The password of the garden shed is tangerine.")
    await seen.desk.indexed()
    await seen.ask(chat, "What is the password of the garden shed?")
    here = {m.id for m in (await seen.desk.open_chat(chat)).messages}
    assert not here & {p.message for e in seen.of(RecallShown, chat) for p in e.passages}
    other = await new_chat(seen)
    await seen.ask(other, "What did I say the password of the garden shed was?")
    recalled = seen.of(RecallShown, other)[-1]
    assert any("tangerine" in p.text for p in recalled.passages)
    question = (await seen.desk.open_chat(other)).messages[0]
    assert "tangerine" in question.block
    assert question.passages == recalled.passages


async def test_the_engine_dies_mid_answer_and_comes_back(seen: Seen) -> None:
    chat = await new_chat(seen)
    await seen.desk.send(chat, "Speak until you drop.")
    await seen.until(lambda: bool(seen.of(AnswerDelta, chat)))
    seen.child("app.host.engine_child").send_signal(signal.SIGKILL)
    await seen.desk.settled(chat)
    broken = (await seen.desk.open_chat(chat)).messages[-1]
    assert broken.status in (MessageStatus.FAILED, MessageStatus.COMPLETE)
    assert broken.text
    await seen.until(lambda: any(isinstance(e, Notice) and "engine" in e.text for e in seen.events))
    assert (await seen.ask(chat, "Are you back?")).status is MessageStatus.COMPLETE


async def test_the_memory_dies_and_the_outbox_finishes(seen: Seen) -> None:
    chat = await new_chat(seen)
    seen.child("app.host.memory_child").send_signal(signal.SIGKILL)
    await seen.ask(chat, "The zeppelin lands on a Thursday.")
    await seen.until(lambda: any(isinstance(e, Notice) and "memory" in e.text for e in seen.events))
    await seen.desk.indexed()
    found = await seen.desk.search("zeppelin Thursday")
    assert any("zeppelin" in p.text for p in found.passages)


async def test_delete_forgets_the_words_and_the_files(seen: Seen, tmp_path: Path) -> None:
    note = tmp_path / "ferret.txt"
    note.write_text("The ferret Xanthippe bites the postman.")
    chat = await new_chat(seen)
    attachment = await seen.desk.attach(chat, note)
    await seen.desk.send(chat, "Whom does Xanthippe bite?", attachments=(attachment,))
    await seen.desk.settled(chat)
    await seen.desk.indexed()
    assert (await seen.desk.search("Xanthippe")).passages
    await seen.desk.delete(chat)
    await seen.desk.indexed()
    assert not [p for p in (await seen.desk.search("Xanthippe")).passages if "Xanthippe" in p.text]
    assert files_with(seen.paths.data, b"Xanthippe") == []
    assert chat not in {row.id for row in await seen.desk.chats()}


async def test_a_file_read_before_its_message_was_sent_belongs_to_the_chat(seen: Seen, tmp_path: Path) -> None:
    note = tmp_path / "otter.txt"
    note.write_text("The otter Leopold sleeps in the boathouse.")
    chat = await new_chat(seen)
    attachment = await seen.desk.attach(chat, note)
    await seen.desk.indexed()
    await seen.desk.send(chat, "Where does Leopold sleep?", attachments=(attachment,))
    await seen.desk.settled(chat)
    stored = (await seen.desk.open_chat(chat)).messages[0].attachments
    assert [a.document for a in stored] == [d.id for d in await seen.desk.documents() if d.name == "otter.txt"]


async def test_a_second_program_says_so_and_chats_all_the_same(seen: Seen) -> None:
    second = Seen(Desk(seen.desk._settings, seen.paths), seen.paths)
    try:
        await second.desk.start()
        await second.desk.model_up()
        chat = await new_chat(second)
        answer = await second.ask(chat, "Is anybody here?")
        assert answer.status is MessageStatus.COMPLETE
        assert any(isinstance(e, Notice) and "Another aios-chat" in e.text for e in second.events)
        assert second.desk.models[1].phase is ModelPhase.FAILED
    finally:
        await second.desk.close()
    assert chat in {row.id for row in await seen.desk.chats()}


async def test_looking_at_the_chats_takes_nothing_from_a_program_that_starts(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "settings.toml").create()
    looking = Desk(load_settings(None, {}, environ={}), paths)
    await looking.open()
    assert await looking.chats() == []
    working = Seen(Desk(load_settings(None, {}, environ={}), paths), paths)
    await working.desk.open()
    await working.desk.own()
    assert not working.events
    await looking.close()
    await working.desk.close()


async def test_a_queue_survives_the_program(tmp_path: Path) -> None:
    queues = OutgoingQueues()
    queues.mirror(tmp_path / "queue.json")
    queues.put(ChatId("c1"), Outgoing("one"))
    queues.put(ChatId("c1"), Outgoing("two"))
    queues.save()
    later = OutgoingQueues()
    later.mirror(tmp_path / "queue.json")
    assert later.texts(ChatId("c1")) == ("one", "two")
    assert later.next(ChatId("c1")) == Outgoing("one")
    (tmp_path / "queue.json").write_text("{broken")
    later.mirror(tmp_path / "queue.json")
    assert later.texts(ChatId("c1")) == ()
