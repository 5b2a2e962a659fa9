"""A memory of its own for each measurement, in a folder that goes away afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory import Memory
from tests.models import embedder_folder


@contextmanager
def new_memory() -> Iterator[Memory]:
    """An empty memory with the shipped embedder, its vectors ready."""
    with tempfile.TemporaryDirectory(prefix="recall-bench-") as folder:
        memory = Memory.open(Path(folder) / "memory", embedder_folder())
        try:
            if not memory.wait_until_indexed(600) or memory.counts().problem:
                raise RuntimeError(memory.counts().problem or "the embedder was not loaded within ten minutes")
            yield memory
        finally:
            memory.close()
