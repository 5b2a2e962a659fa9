"""Brings the models up beside the screen: fetch, load, say how far it is. The engine and the memory independently."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from app.events import Listener, ModelPhase, ModelState, Notice, Part, Severity
from app.host import wire
from app.host.host import Host
from app.host.process import ChildExit
from app.host.stream import HostError
from app.ids import ChatId
from app.models.embedders import resolve_embedder, resolve_image_embedder
from app.models.errors import ModelError
from app.models.fetch import FetchPhase, FetchProgress
from app.models.resolve import ShippedModel, choose, resolve
from app.option_kinds import Switch
from app.paths import Paths
from app.settings import Settings

SETTLED = (ModelPhase.READY, ModelPhase.FAILED)
_PARTS = {"engine": Part.MODEL, "memory": Part.MEMORY}
"""Which part each child is."""


@dataclass(slots=True)
class _Part:
    state: ModelState
    settled: asyncio.Event


class Startup:
    """Fetches and loads the chat model and the memory; keeps and tells their latest state."""

    def __init__(self, settings: Settings, paths: Paths, emit: Listener) -> None:
        self._settings, self._paths, self._emit = settings, paths, emit
        self.host = Host(paths.logs, self._ended, self._back, lambda child, why: self._failed(_PARTS[child], why))
        self._parts = {name: _Part(ModelState(name, ModelPhase.LOADING, "waiting"), asyncio.Event()) for name in Part}

    def state(self, part: Part) -> ModelState:
        """The latest state of one part."""
        return self._parts[part].state

    @property
    def states(self) -> tuple[ModelState, ...]:
        """The latest state of the model and of the memory."""
        return tuple(part.state for part in self._parts.values())

    @property
    def tokenizer_file(self) -> Path:
        """Where the engine's child writes its tokenizer: one file a model, as `ask --model` may run beside the screen,
        and the memory of each counts by its own."""
        model = hashlib.sha256(self._settings.model.encode()).hexdigest()
        return self._paths.models / f"tokenizer-{model[:12]}.json"

    async def ready(self, name: Part) -> ModelState:
        """Wait until the part is READY or FAILED; its state. A part that is started again is neither meanwhile."""
        part = self._parts[name]
        while part.state.phase not in SETTLED:
            await part.settled.wait()
        return part.state

    async def start_model(self) -> None:
        """Fetch and load the chat model; again, when that failed before."""
        settings = self._settings
        self._tell(ModelState(Part.MODEL, ModelPhase.LOADING, "looking for the model"))
        try:
            path = await resolve(settings.model, self._paths.models, lambda p: self._fetching(Part.MODEL, p))
            self._tell(ModelState(Part.MODEL, ModelPhase.LOADING, "loading the model"))
            options = wire.EngineOptions(
                model=str(path),
                quota_tokens=settings.window_tokens,
                page_size=settings.page_size,
                kv_format=settings.kv_format.value,
                policy=settings.policy.value,
                sessions=settings.sessions,
                device=settings.device,
                threads=settings.threads,
                tokenizer_file=str(self.tokenizer_file),
                host_bytes=settings.host_mib << 20,
                guess_tokens=settings.guess_tokens,
                thinking=settings.thinking is Switch.ON,
                weights=settings.weights,
            )
            ready = await self.host.start_engine(options, self._model_loading)
        except (ModelError, HostError) as error:
            self._failed(Part.MODEL, str(error))
            return
        self._model_ready(ready)

    async def start_memory(self) -> None:
        """Fetch the embedder and open the memory."""
        try:
            name = self._settings.embedder
            path = await resolve_embedder(name, self._paths.models, lambda p: self._fetching(Part.MEMORY, p))
            self._tell(ModelState(Part.MEMORY, ModelPhase.LOADING, "opening the memory"))
            pictures = await resolve_image_embedder(self._settings.image_embedder, self._paths.models)
            options = wire.MemoryOptions(
                str(self._paths.memory),
                str(path),
                self._settings.ocr_languages,
                "" if pictures is None else str(pictures),
            )
            ready = await self.host.start_memory(options, lambda p: self._loading(Part.MEMORY, "indexing anew", p))
        except (ModelError, HostError) as error:
            self._failed(Part.MEMORY, str(error))
            return
        self._memory_ready(ready)

    async def stop(self) -> None:
        """End both children."""
        await self.host.stop()

    async def window(self, chat: ChatId) -> wire.WindowView | None:
        """What the model sees of a chat; None while no model is up."""
        if self.state(Part.MODEL).phase is not ModelPhase.READY or not self.host.engine.alive:
            return None
        try:
            return await self.host.window(chat)
        except HostError:
            return None  # it has just died; a chat can be read without it

    def _fetching(self, name: Part, progress: FetchProgress) -> None:
        if progress.phase is not FetchPhase.READY:
            text = f"{progress.phase.value} {progress.entry.title}"
            self._tell(ModelState(name, ModelPhase.FETCHING, text, progress.done, progress.total))

    def _model_loading(self, progress: object) -> None:
        state = self._parts[Part.MODEL].state
        match progress:
            case wire.LoadPlan(weights, kv, free) if state.phase not in SETTLED:
                text = f"loading the model: {_gib(weights)} of weights and {_gib(kv)} of window, {_gib(free)} are free"
                self._tell(replace(state, text=text))
            case wire.LoadProgress(done, total):
                self._tell(replace(state, done=done, total=total))

    def _loading(self, name: Part, text: str, progress: object) -> None:
        """Progress says nothing about the phase: the memory serves while it indexes anew."""
        if isinstance(progress, wire.LoadProgress):
            self._tell(replace(self._parts[name].state, text=text, done=progress.done, total=progress.total))

    def _model_ready(self, ready: wire.EngineReady) -> None:
        ready = replace(ready, model_name=_title(self._settings.model) or ready.model_name)
        self._tell(ModelState(Part.MODEL, ModelPhase.READY, ready.model_name, engine=ready))

    def _memory_ready(self, ready: wire.MemoryReady) -> None:
        for warning in ready.warnings:
            self._emit(Notice(warning, Severity.WARNING))
        self._tell(ModelState(Part.MEMORY, ModelPhase.READY, f"{ready.passages} passages"))

    def _failed(self, name: Part, sentence: str) -> None:
        self._tell(ModelState(name, ModelPhase.FAILED, sentence))

    def _ended(self, end: ChildExit, again: bool) -> None:
        after = "It is being started again; the chat is safe." if again else "It is left down; restart aios-chat."
        sentence = f"{end.sentence} {after}"
        self._emit(Notice(sentence, Severity.WARNING if again else Severity.ERROR))
        part = _PARTS[end.name]
        if again:
            self._tell(ModelState(part, ModelPhase.LOADING, f"starting the {end.name} again"))
        else:
            self._failed(part, sentence)

    def _back(self, child: str, ready: object) -> None:
        match ready:
            case wire.EngineReady():
                self._model_ready(ready)
            case wire.MemoryReady():
                self._memory_ready(ready)
            case _:
                raise TypeError(f"the {child} answered its options by a {type(ready).__name__}")

    def _tell(self, state: ModelState) -> None:
        part = self._parts[state.part]
        part.state = state
        if state.phase in SETTLED:
            part.settled.set()
        else:
            part.settled.clear()
        self._emit(state)


def _title(model: str) -> str:
    """The proper name of a shipped model; GGUF files carry their training run's name. "" for any other."""
    choice = choose(model)
    return choice.entry.title if isinstance(choice, ShippedModel) else ""


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
