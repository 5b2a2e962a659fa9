"""What a person may give as the embedder, and which folder that means."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from app.models.errors import ModelError
from app.models.fetch import OnProgress, fetch
from app.models.hub import fetch_from_hub
from app.models.manifest import embedder

SUPPORTED = '"starter", the folder of a sentence-transformers model, or its Hugging Face id'
SUPPORTED_FOR_PICTURES = '"off", the folder of a CLIP-style sentence-transformers model, or its Hugging Face id'
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


async def resolve_embedder(name: str, models_folder: Path, on_progress: OnProgress) -> Path:
    """The folder of the embedder that `name` means, fetched first where it is not here yet.

    Raises ModelError (one sentence). The network is used only for a model that is not here.
    """
    if name == "starter":
        return await fetch(embedder(), models_folder, on_progress)
    return await _given(name, models_folder, "embedder", SUPPORTED)


async def resolve_image_embedder(name: str, models_folder: Path) -> Path | None:
    """The folder of the model that says what pictures show; None where `name` is "off".

    Raises ModelError (one sentence). The network is used only for a model that is not here.
    """
    if name == "off":
        return None
    return await _given(name, models_folder, "image embedder", SUPPORTED_FOR_PICTURES)


async def _given(name: str, models_folder: Path, what: str, supported: str) -> Path:
    """The folder of a person's own model: one on this machine, or of a hub id."""
    folder = await asyncio.to_thread(_folder, name, supported)
    if folder is not None:
        return folder
    if not name.startswith(("/", "./", "../", "~")) and _HUB_ID.fullmatch(name):
        return await fetch_from_hub(name, models_folder)
    raise ModelError(f"There is no {what} {name!r} here; give {supported}.")


def _folder(name: str, supported: str) -> Path | None:
    path = Path(name).expanduser()
    if not path.is_dir():
        return None
    if not (path / "modules.json").is_file():
        raise ModelError(f"{path} is no sentence-transformers model (no modules.json); give {supported}.")
    return path.resolve()
