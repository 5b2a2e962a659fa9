"""The states of the models that people are shown, with children that a test starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from app.events import Event, ModelPhase, ModelState, Notice, Part, Severity
from app.host import wire
from app.host.process import ChildExit
from app.models.errors import ModelError
from app.paths import Paths
from app.settings import load_settings
from app.startup import Startup

ENGINE = wire.EngineReady("tiny", "llama", 1, 1, 1, 512, 1, "cpu", "float32", 0.1, 1 << 30, False)
CHILDREN = {Part.MODEL: "engine", Part.MEMORY: "memory"}


class ScriptedHost:
    """Children that get ready at once and end when the test says so."""

    def __init__(
        self,
        _logs: Path,
        on_end: Callable[[ChildExit, bool], None],
        on_back: Callable[[str, object], None],
        on_lost: Callable[[str, str], None],
    ) -> None:
        self.on_end, self.on_back, self.on_lost = on_end, on_back, on_lost
        self.pushes: dict[str, Callable[[object], None]] = {}

    async def start_engine(self, _options: wire.EngineOptions, on_load: Callable[[object], None]) -> wire.EngineReady:
        self.pushes[Part.MODEL] = on_load
        return ENGINE

    async def start_memory(self, _options: wire.MemoryOptions, on_load: Callable[[object], None]) -> wire.MemoryReady:
        self.pushes[Part.MEMORY] = on_load
        return wire.MemoryReady(0, 7, "e")

    def ready(self, part: str) -> object:
        return ENGINE if part == Part.MODEL else wire.MemoryReady(0, 7, "e")

    def end(self, part: str, again: bool) -> None:
        child = CHILDREN[part]
        self.on_end(ChildExit(child, -9, False, f"The {child} stopped working (killed)."), again)


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
async def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[Event]) -> tuple[Startup, ScriptedHost]:
    async def here(*_: object) -> Path:
        return tmp_path

    monkeypatch.setattr("app.startup.Host", ScriptedHost)
    monkeypatch.setattr("app.startup.resolve", here)
    monkeypatch.setattr("app.startup.resolve_embedder", here)
    startup = Startup(load_settings(None, {}, environ={}), Paths(tmp_path, tmp_path / "s.toml"), told.append)
    await startup.start_model()
    await startup.start_memory()
    assert isinstance(startup.host, ScriptedHost)
    return startup, startup.host


def phase(startup: Startup, part: str) -> ModelPhase:
    return next(state.phase for state in startup.states if state.part == part)


@pytest.mark.parametrize("part", [Part.MODEL, Part.MEMORY])
async def test_progress_that_comes_late_does_not_undo_ready(up: tuple[Startup, ScriptedHost], part: str) -> None:
    startup, host = up
    host.pushes[part](wire.LoadProgress(3, 5))
    state = next(state for state in startup.states if state.part == part)
    assert (state.phase, state.done, state.total) == (ModelPhase.READY, 3, 5)
    assert (await startup.ready(part)).phase is ModelPhase.READY


@pytest.mark.parametrize("part", [Part.MODEL, Part.MEMORY])
async def test_a_part_that_is_started_again_is_waited_for(up: tuple[Startup, ScriptedHost], part: str) -> None:
    startup, host = up
    host.end(part, again=True)
    assert phase(startup, part) is ModelPhase.LOADING
    waiting = asyncio.create_task(startup.ready(part))
    host.pushes[part](wire.LoadProgress(1, 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    host.on_back(CHILDREN[part], host.ready(part))
    assert (await waiting).phase is ModelPhase.READY
    assert next(state.engine for state in startup.states if state.part == Part.MODEL) is not None


async def test_the_plan_is_told_and_stays_while_layers_are_read(up: tuple[Startup, ScriptedHost]) -> None:
    startup, host = up
    host.end(Part.MODEL, again=True)
    for push in (wire.LoadPlan(3 * 2**30, 2**29, 5 * 2**30), wire.LoadProgress(1, 2)):
        host.pushes[Part.MODEL](push)
    state = startup.state(Part.MODEL)
    assert "3.00 GiB of weights and 0.50 GiB of window, 5.00 GiB are free" in state.text
    assert (state.done, state.total) == (1, 2)


@pytest.mark.parametrize("part", [Part.MODEL, Part.MEMORY])
async def test_a_part_that_stays_down_says_so_and_nobody_waits(
    up: tuple[Startup, ScriptedHost], told: list[Event], part: str
) -> None:
    startup, host = up
    host.end(part, again=False)
    state = await startup.ready(part)
    assert state.phase is ModelPhase.FAILED
    assert state.text.endswith("restart aios-chat.")
    assert any(isinstance(e, Notice) and e.severity is Severity.ERROR for e in told)


@pytest.mark.parametrize("part", [Part.MODEL, Part.MEMORY])
async def test_a_restart_that_fails_says_why(up: tuple[Startup, ScriptedHost], part: str) -> None:
    startup, host = up
    host.end(part, again=True)
    host.on_lost(CHILDREN[part], "The disk is gone.")
    assert await startup.ready(part) == ModelState(part, ModelPhase.FAILED, "The disk is gone.")


async def test_a_model_that_failed_is_tried_again(
    up: tuple[Startup, ScriptedHost], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    startup, _ = up

    async def fails(*_: object) -> Path:
        raise ModelError("There is no network.")

    monkeypatch.setattr("app.startup.resolve", fails)
    await startup.start_model()
    assert (await startup.ready(Part.MODEL)).text == "There is no network."

    async def works(*_: object) -> Path:
        return tmp_path

    monkeypatch.setattr("app.startup.resolve", works)
    await startup.start_model()
    assert (await startup.ready(Part.MODEL)).phase is ModelPhase.READY


async def test_two_models_on_one_data_folder_count_by_a_tokenizer_each(tmp_path: Path) -> None:
    def file(model: str) -> Path:
        paths, settings = Paths(tmp_path, tmp_path / "s.toml"), load_settings(None, {"model": model}, environ={})
        return Startup(settings, paths, [].append).tokenizer_file

    assert file("starter") == file("starter") != file("/models/other.gguf")
