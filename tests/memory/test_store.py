"""Opening and closing the store, whatever the embedder is doing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from memory.store import Store


class SlowEmbedder:
    """An embedder whose model is being read until the test says otherwise."""

    id = "slow"

    def __init__(self) -> None:
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    @property
    def dimension(self) -> int:
        self.asked.set()
        self.may_go_on.wait()
        return 8


def test_closing_does_not_wait_for_an_embedder_and_opens_nothing_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr("memory.store.VectorIndex.open_sound", lambda *which: opened.append(which))
    embedder = SlowEmbedder()
    store = Store(tmp_path, embedder, None)  # type: ignore[arg-type]
    embedder.asked.wait()
    store.close()
    embedder.may_go_on.set()
    assert not store.wait_for_vectors(60)
    assert store.wait_until_complete(60)
    assert opened == []
    assert store.problem == ""
