from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.host.process import ChildProcess

PROGRAMS = Path(__file__).parent / "programs"
sys.path.append(str(PROGRAMS))  # the payload types must have one name here and in the children


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(PROGRAMS), os.environ.get("PYTHONPATH")])))


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "memory.log"


@pytest.fixture
async def new_child(log_file: Path) -> AsyncIterator[Callable[..., ChildProcess]]:
    made: list[ChildProcess] = []

    def new(module: str = "host_child", **options: object) -> ChildProcess:
        child = ChildProcess("memory", module, log_file, **options)  # type: ignore[arg-type]
        made.append(child)
        return child

    yield new
    for child in made:
        await child.stop(timeout=0)
