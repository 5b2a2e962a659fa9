"""What a person may give as the model, and which file or folder that means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from app.models.errors import ModelError
from app.models.fetch import OnProgress, fetch
from app.models.hub import fetch_from_hub
from app.models.manifest import ModelEntry, ModelKind, entries

SUPPORTED = (
    '"starter", a .gguf file, a folder with config.json and .safetensors files, or a Hugging Face id such as '
    "HuggingFaceTB/SmolLM2-360M-Instruct"
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A model that aios-chat fetches by itself."""

    entry: ModelEntry


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A GGUF file or a Hugging Face folder that is here already."""

    path: Path


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the Hugging Face hub."""

    repository: str


ModelChoice = ShippedModel | LocalModel | HubModel


def choose(model: str) -> ModelChoice:
    """Decide what `model` names; touches only the local disk. Raises ModelError with what is supported."""
    text = model.strip()
    for entry in entries():
        if entry.name == text and entry.kind is ModelKind.CHAT:
            return ShippedModel(entry)
    if not text:
        raise ModelError(f"No model was named; give {SUPPORTED}.")
    path = Path(text).expanduser()
    if path.is_dir():
        return LocalModel(_checked_folder(path).resolve())
    if path.is_file():
        return LocalModel(_checked_file(path).resolve())
    looks_like_a_path = text.startswith(("/", "./", "../", "~")) or text.lower().endswith(".gguf")
    if not looks_like_a_path and _HUB_ID.fullmatch(text):
        return HubModel(text)
    raise ModelError(f"There is no model {text!r} here; give {SUPPORTED}.")


async def resolve(model: str, models_folder: Path, on_progress: OnProgress) -> Path:
    """The GGUF file or folder that `model` names, fetched first where it is not here yet.

    Raises ModelError (one sentence). The network is used only for a model that is not here.
    """
    match choose(model):
        case ShippedModel(entry):
            return await fetch(entry, models_folder, on_progress)
        case LocalModel(path):
            return path
        case HubModel(repository):
            return await fetch_from_hub(repository, models_folder)


def _checked_file(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}).") from error
    if magic == _GGUF_MAGIC:
        return path
    if path.suffix == ".safetensors":
        raise ModelError(f"{path} is one file of a model; give the folder that holds it and its config.json.")
    raise ModelError(f"{path} is not a GGUF file; give {SUPPORTED}.")


def _checked_folder(path: Path) -> Path:
    try:
        names = {child.name for child in path.iterdir()}
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}).") from error
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return path
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    if ggufs:
        raise ModelError(f"{path} is a folder; name the file itself: {path / ggufs[0]}.")
    if "config.json" in names:
        raise ModelError(
            f"{path} has no .safetensors files; other weight formats are not read (a .bin file can run code when it is "
            "opened): take a copy of the model with .safetensors files."
        )
    raise ModelError(f"{path} holds no model; give {SUPPORTED}.")
