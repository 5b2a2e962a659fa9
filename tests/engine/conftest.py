from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.model.load import load_model
from tests.engine.tiny import CPU, Tiny, write_llama
from tests.models import starter_file


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("tiny")
    theirs = write_llama(folder)
    return Tiny(folder, theirs, load_model(folder, device=CPU, dtype=torch.float32))


@pytest.fixture(scope="session")
def starter_path() -> Path:
    """The starter model's file, fetched once as the product fetches it, its hash checked."""
    return starter_file()
