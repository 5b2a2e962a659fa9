"""Brings the models up beside the screen: fetch, load, say how far it is. The engine and the memory independently."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from app.events import Listener, ModelPhase, ModelState, Notice, Severity
from app.host import wire
from app.host.host import Host
from app.host.process import ChildExit
from app.host.stream import HostError
from app.models.errors import ModelError
from app.models.fetch import FetchPhase, FetchProgress, fetch
from app.models.manifest import embedder
from app.models.resolve import ShippedModel, choose, resolve
from app.paths import Paths
from app.settings import Settings

MODEL, MEMORY = "model", "memory"


@dataclass(slots=True)
class _Part:
    state: ModelState
    settled: asyncio.Event


class Startup:
    """Fetches and loads the chat model and the memory; keeps and tells their latest state."""

    def __init__(self, settings: Settings, paths: Paths, emit: Listener) -> None:
        self._settings, self._paths, self._emit = settings, paths, emit
        self.host = Host(paths.logs, self._restarted)
        self._parts = {
            name: _Part(ModelState(name, ModelPhase.LOADING, "waiting"), asyncio.Event()) for name in (MODEL, MEMORY)
        }

    @property
    def states(self) -> tuple[ModelState, ...]:
        """The latest state of the model and of the memory."""
        return tuple(part.state for part in self._parts.values())

    @property
    def tokenizer_file(self) -> Path:
        """Where the engine's child writes its tokenizer."""
        return self._paths.models / "tokenizer.json"

    async def ready(self, name: str) -> ModelState:
        """Wait until the part is READY or FAILED; its state."""
        part = self._parts[name]
        await part.settled.wait()
        return part.state

    async def start_model(self) -> None:
        """Fetch and load the chat model."""
        settings = self._settings
        try:
            path = await resolve(settings.model, self._paths.models, lambda p: self._fetching(MODEL, p))
            self._tell(ModelState(MODEL, ModelPhase.LOADING, "loading the model"))
            options = wire.EngineOptions(
                model=str(path),
                quota_tokens=settings.window_tokens,
                page_size=settings.page_size,
                sessions=settings.sessions,
                device=settings.device,
                threads=settings.threads,
                tokenizer_file=str(self.tokenizer_file),
            )
            ready = await self.host.start_engine(options, lambda p: self._loading(MODEL, "loading the model", p))
        except (ModelError, HostError) as error:
            self._failed(MODEL, str(error))
            return
        ready = replace(ready, model_name=_title(settings.model) or ready.model_name)
        self._tell(ModelState(MODEL, ModelPhase.READY, ready.model_name, engine=ready))

    async def start_memory(self) -> None:
        """Fetch the embedder and open the memory."""
        try:
            path = await fetch(embedder(), self._paths.models, lambda p: self._fetching(MEMORY, p))
            self._tell(ModelState(MEMORY, ModelPhase.LOADING, "opening the memory"))
            options = wire.MemoryOptions(str(self._paths.memory), str(path), self._settings.ocr_languages)
            ready = await self.host.start_memory(options, lambda p: self._loading(MEMORY, "indexing anew", p))
        except (ModelError, HostError) as error:
            self._failed(MEMORY, str(error))
            return
        for warning in ready.warnings:
            self._emit(Notice(warning, Severity.WARNING))
        self._tell(ModelState(MEMORY, ModelPhase.READY, f"{ready.passages} passages"))

    async def stop(self) -> None:
        """End both children."""
        await self.host.stop()

    def _fetching(self, name: str, progress: FetchProgress) -> None:
        if progress.phase is not FetchPhase.READY:
            text = f"{progress.phase.value} {progress.entry.title}"
            self._tell(ModelState(name, ModelPhase.FETCHING, text, progress.done, progress.total))

    def _loading(self, name: str, text: str, progress: object) -> None:
        if isinstance(progress, wire.LoadProgress):
            self._tell(ModelState(name, ModelPhase.LOADING, text, progress.done, progress.total))

    def _failed(self, name: str, sentence: str) -> None:
        self._tell(ModelState(name, ModelPhase.FAILED, sentence))

    def _restarted(self, end: ChildExit, again: bool) -> None:
        after = "it is being started again; the chat is safe" if again else "it is left down; restart aios-chat"
        self._emit(Notice(f"{end.sentence.rstrip('.')}: {after}.", Severity.WARNING if again else Severity.ERROR))

    def _tell(self, state: ModelState) -> None:
        part = self._parts[state.part]
        part.state = state
        if state.phase in (ModelPhase.READY, ModelPhase.FAILED):
            part.settled.set()
        self._emit(state)


def _title(model: str) -> str:
    """The proper name of a shipped model; GGUF files carry their training run's name. "" for any other."""
    choice = choose(model)
    return choice.entry.title if isinstance(choice, ShippedModel) else ""
