"""The shipped models for tests: fetched once as the product fetches them, kept in a cache folder of their own."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import platformdirs

from app.models.fetch import fetch
from app.models.manifest import ModelEntry, embedder, entry

FOLDER_VARIABLE = "AIOS_CHAT_TEST_MODELS"


def models_folder() -> Path:
    """Where the tests keep models between runs."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else Path(platformdirs.user_cache_dir("aios-chat-tests")) / "models"


def fetched(model: ModelEntry) -> Path:
    """The model's file or folder, fetched when it is not there yet."""
    with ThreadPoolExecutor(1) as thread:  # the caller may be inside an event loop of its own
        return thread.submit(lambda: asyncio.run(fetch(model, models_folder(), lambda _progress: None))).result()


def starter_file() -> Path:
    """The starter model's GGUF file."""
    return fetched(entry("starter"))


def embedder_folder() -> Path:
    """The starter embedder's folder."""
    return fetched(embedder())
