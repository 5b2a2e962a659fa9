"""The engine's child without its pipes: calls go in, what it sends comes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from app.host import wire
from app.host.engine_child import EngineChild
from app.host.frames import Call, CallId, Result, Stop
from app.host.recall_room import most_recalled
from app.host.sampling import Sampling
from app.ids import ChatId, MessageId
from engine.engine import Engine
from tests.engine.tiny import write_llama

CHAT = ChatId("c")
ALL = ("q0", "a0", "q1", "a1", "q2")


class ScriptedChannel:
    """Hands out calls and keeps what comes back. It says stop when the child waits for more with nothing to do, and
    fails one that polls for ever."""

    def __init__(self) -> None:
        self.calls: deque[Call] = deque()
        self.events: list[tuple[CallId, object]] = []
        self.results: dict[CallId, object] = {}
        self.failures: dict[CallId, str] = {}
        self.dropped: set[CallId] = set()
        self.after_event: Callable[[], None] = lambda: None
        self._polls = 0

    def receive(self, timeout: float | None = None) -> Call | Stop | None:
        if self.calls:
            return self.calls.popleft()
        self._polls += 1
        assert self._polls < 2000
        return Stop() if timeout is None else None

    def send(self, envelope: Result) -> None:
        assert envelope.id not in self.results
        self.results[envelope.id] = envelope.payload

    def event(self, call: CallId, payload: object) -> None:
        assert call not in self.results
        self.events.append((call, payload))
        self.after_event()

    def push(self, payload: object) -> None:
        pass

    def cancelled(self, call: CallId) -> bool:
        return call in self.dropped

    def fail(self, call: CallId, error: BaseException, expected: tuple[type[Exception], ...] = ()) -> None:
        assert isinstance(error, expected), error
        self.failures[call] = str(error)


class Child:
    """A child with a model, and the calls made of it so far."""

    def __init__(self, folder: Path, policy: str = "round-robin") -> None:
        self.channel = ScriptedChannel()
        self.child = EngineChild(self.channel)  # type: ignore[arg-type]
        self.calls = 0
        options = wire.EngineOptions(
            model=str(folder / "tiny"),
            quota_tokens=256,
            page_size=8,
            kv_format="auto",
            sessions=2,
            device="cpu",
            threads=1,
            tokenizer_file=str(folder / "tokenizer.json"),
            host_bytes=0,
            guess_tokens=0,
            policy=policy,
        )
        self.run(options)

    def call(self, payload: object) -> CallId:
        self.calls += 1
        self.channel.calls.append(Call(CallId(self.calls), payload))
        return CallId(self.calls)

    def run(self, payload: object) -> CallId:
        """Call, and let the child work until it has nothing to do."""
        call = self.call(payload)
        self.child.run()
        return call

    def told(self, call: CallId, kind: type) -> list:
        return [payload for of, payload in self.channel.events if of == call and isinstance(payload, kind)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("child")
    write_llama(folder / "tiny")
    threads = torch.get_num_threads()
    yield folder
    torch.set_num_threads(threads)


def said(key: str) -> wire.PromptMessage:
    role = wire.Role.USER if key.startswith("q") else wire.Role.ASSISTANT
    return wire.PromptMessage(MessageId(key), role, f"the text of {key}")


def reading(*pinned: str, path: tuple[str, ...] = ALL) -> wire.ReadRequest:
    return wire.ReadRequest(CHAT, "s", tuple(map(said, path)), tuple(map(said, pinned)))


def asking(*pinned: str, path: tuple[str, ...] = ALL) -> wire.GenerateRequest:
    sampling = Sampling(1.0, 0, 1.0, 3, 12)
    return wire.GenerateRequest(CHAT, "s", tuple(map(said, path)), MessageId("a2"), sampling, tuple(map(said, pinned)))


def test_a_chat_is_read_with_what_is_pinned_and_the_next_question_finds_it_read(folder: Path) -> None:
    child = Child(folder)
    read = child.run(reading("a0", path=ALL[:-1]))
    window = child.channel.results[read]
    assert isinstance(window, wire.WindowView)
    assert [(s.message, s.pinned) for s in window.segments] == [
        (None, False),
        ("a0", True),
        ("q0", False),
        ("q1", False),
        ("a1", False),
    ]
    assert window.pinned_tokens == window.segments[1].visible_tokens == len("<assistant\nthe text of a0>\n")
    progress = child.told(read, wire.PrefillProgress)
    assert progress[0] == wire.PrefillProgress(0, window.position)
    assert progress[-1] == wire.PrefillProgress(window.position, window.position)
    asked = child.run(asking("a0"))
    finished = child.channel.results[asked]
    assert isinstance(finished, wire.Finished)
    assert finished.prompt_tokens == len("<user\nthe text of q2>\n<assistant\n")


def preparing(block_tokens: int, *pinned: str) -> wire.PrepareRequest:
    path = tuple(f"{role}{n}" for n in range(4) for role in "qa")
    return wire.PrepareRequest(CHAT, "s", tuple(map(said, path)), "a question", block_tokens, tuple(map(said, pinned)))


@pytest.mark.parametrize("pinned", [(), ("a0", "q1")])
def test_what_a_question_will_see_is_told_for_no_more_recalled_text_than_there_can_be(
    folder: Path, pinned: tuple[str, ...]
) -> None:
    child = Child(folder)
    told = [child.channel.results[child.run(preparing(block, *pinned))] for block in (0, 60, 10_000)]
    rings = {prepared.ring_tokens for prepared in told}
    assert len(rings) == 1
    window = child.channel.results[child.run(wire.WindowRequest(CHAT))]
    ring = rings.pop()
    assert ring == window.ring_tokens == (window.quota_tokens - window.sink_tokens) // 8 * 8
    half = child.channel.results[child.run(preparing(most_recalled(ring), *pinned))]
    assert told[2] == half
    assert set(pinned) <= set(half.whole) < set(told[1].whole) < set(told[0].whole)


def test_a_question_takes_the_place_of_the_reading_of_its_chat(folder: Path) -> None:
    child = Child(folder)
    read = child.call(reading("a0"))
    child.call(reading("q0"))
    asked = child.run(asking("q0"))
    assert child.channel.results[read] is None
    assert child.channel.results[CallId(read + 1)] is None
    assert isinstance(child.channel.results[asked], wire.Finished)


def test_pins_that_change_during_an_answer_are_only_looked_at(folder: Path) -> None:
    child, calls = Child(folder), list[CallId]()

    def pin_once() -> None:
        if not calls:
            calls.extend((child.call(reading("a0")), child.call(reading(*ALL, "a2", "q3", "a3"))))

    child.channel.after_event = pin_once
    asked = child.run(asking())
    assert isinstance(child.channel.results[asked], wire.Finished)
    assert child.channel.results[calls[0]] is None
    assert child.told(calls[0], wire.PrefillProgress)
    assert "what is pinned takes 196 tokens" in child.channel.failures[calls[1]]
    assert child.child._ready()[0].stats().chats == 1


def test_too_much_is_refused_before_anything_is_read(folder: Path) -> None:
    child = Child(folder)
    path = tuple(f"{role}{n}" for n in range(4) for role in "qa")
    before = child.run(reading("a0", path=path))
    refused = child.run(reading(*path, path=path))
    assert "what is pinned takes 196 tokens; 128 are allowed of a window of 256" in child.channel.failures[refused]
    assert not child.told(refused, wire.PrefillProgress)
    view = child.run(wire.WindowRequest(CHAT))
    assert child.channel.results[view] == child.channel.results[before]


def test_a_reading_that_nobody_waits_for_ends(folder: Path) -> None:
    child = Child(folder)
    child.channel.after_event = lambda: child.channel.dropped.add(read)
    read = CallId(child.calls + 1)
    assert child.run(reading("a0")) == read
    assert child.channel.results[read] is None
    assert not child.child._ready()[0].busy


def test_a_chat_that_is_closed_while_it_is_read(folder: Path) -> None:
    child = Child(folder)
    read = child.call(reading("a0"))
    child.run(wire.CloseSession(CHAT))
    assert child.channel.results[read] is None


def test_a_policy_that_reads_nothing_ahead_ends_the_reading_at_once(folder: Path) -> None:
    child = Child(folder, policy="truncate")
    read = child.run(reading("a0"))
    assert child.channel.results[read] is None
    assert child.told(read, wire.PrefillProgress)


def test_a_model_that_fails_ends_the_reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child(folder)

    def fail(_: Engine) -> list[object]:
        raise RuntimeError("no memory")

    monkeypatch.setattr(Engine, "step", fail)
    read = child.run(reading("a0"))
    assert child.channel.results[read] is None
    assert child.child._ready()[0].stats().chats == 0
