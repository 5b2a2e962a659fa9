"""A real embedder, real Chroma, real files made on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from memory import Memory
from memory.embed import Embedder
from memory.types import IngestReport, Message, Progress, SourceId
from tests.models import embedder_folder as shipped_embedder

_NOON = 1_762_171_200.0
Turns = Callable[..., list[Message]]


@pytest.fixture(scope="session")
def embedder_folder() -> Path:
    return shipped_embedder()


@pytest.fixture(scope="session")
def embedder(embedder_folder: Path) -> Embedder:
    return Embedder(embedder_folder, threads=1)


@pytest.fixture
def memory(tmp_path: Path, embedder_folder: Path) -> Iterator[Memory]:
    opened = Memory.open(tmp_path / "memory", embedder_folder, "eng", threads=1)
    assert opened.wait_until_indexed(240)
    yield opened
    opened.close()


@pytest.fixture
def ingest(memory: Memory) -> Callable[[Path], IngestReport]:
    def read(path: Path) -> IngestReport:
        return memory.ingest(path, path.name, str(path), _ignore, lambda: False)

    return read


def _ignore(progress: Progress) -> None:
    assert progress.done <= progress.total


@pytest.fixture(scope="session")
def turns() -> Turns:
    """Messages of one chat, user and assistant in turn, a minute apart: ids "chat-1-m1", "chat-1-m2", …"""

    def make(texts: Sequence[str], chat: str = "chat-1", first: int = 1) -> list[Message]:
        numbered = enumerate(texts, start=first)
        return [
            Message(
                chat=SourceId(chat),
                chat_title="A chat",
                id=f"{chat}-m{number}",
                parent=f"{chat}-m{number - 1}" if number > 1 else None,
                role="user" if (number - first) % 2 == 0 else "assistant",
                text=text,
                time=_NOON + 60.0 * number,
            )
            for number, text in numbered
        ]

    return make
