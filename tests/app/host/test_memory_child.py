"""The memory's child: what is asked while the memory still opens, as after a restart, waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.host import wire
from app.host.documents import Refusal
from app.host.memory_child import MemoryChild
from memory import types
from memory.memory import Memory
from memory.types import Counts, RecallError

OPTIONS = wire.MemoryOptions("folder", "embedder", "eng")


class Opened:
    """A memory with nothing in it."""

    def counts(self) -> Counts:
        return Counts(0, 0, 0, 0, "e", "The vectors are damaged.")

    def search(self, *_: object) -> tuple[()]:
        return ()


def opening(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> tuple[object, ...]:
    """What came of opening a memory and of a search that was asked meanwhile."""
    asked, may_open = threading.Event(), threading.Event()

    def open_slowly(*_: object, **_named: object) -> Opened:
        may_open.wait()
        if error is not None:
            raise error
        return Opened()

    monkeypatch.setattr(Memory, "open", open_slowly)
    child = MemoryChild(None)  # type: ignore[arg-type]

    def search() -> object:
        asked.set()
        return child._search(wire.SearchRequest("q", 3, None), None)  # type: ignore[arg-type]

    with ThreadPoolExecutor(2) as pool:
        opens = pool.submit(child._open, OPTIONS, None)  # type: ignore[arg-type]
        searches = pool.submit(search)
        asked.wait()
        may_open.set()
        return tuple(future.exception() or future.result() for future in (opens, searches))


def test_a_call_waits_until_the_memory_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    ready, found = opening(monkeypatch, None)
    assert ready == wire.MemoryReady(0, 0, "e", ("The vectors are damaged.",))
    assert isinstance(found, wire.SearchResult)


def test_a_call_does_not_wait_for_a_memory_that_will_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opens, found = opening(monkeypatch, RecallError("It is in use."))
    assert isinstance(opens, RecallError)
    assert isinstance(found, RecallError)


def test_every_refusal_of_a_file_is_known_to_the_app() -> None:
    errors = {types.IngestError, *types.IngestError.__subclasses__()} - {types.IngestCancelledError}
    assert {error.__name__ for error in errors} == {str(refusal) for refusal in Refusal}
