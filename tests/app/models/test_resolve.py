from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.models import manifest
from app.models.errors import FetchError, ModelError
from app.models.hub import COMPLETE, hub_home
from app.models.resolve import HubModel, LocalModel, ShippedModel, choose, resolve


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF\x03\0\0\0")
    (tmp_path / "text.gguf").write_bytes(b"hello")
    for name, files in {
        "org/model": ("config.json", "model.safetensors"),
        "old": ("config.json", "pytorch_model.bin"),
        "ggufs": ("b.gguf", "a.gguf"),
        "empty": (),
    }.items():
        (tmp_path / name).mkdir(parents=True)
        for file in files:
            (tmp_path / name / file).write_text("{}")
    return tmp_path


def test_what_is_understood(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    assert choose("starter") == ShippedModel(manifest.entry("starter"))
    assert choose("m.gguf") == choose(str(here / "m.gguf")) == choose("~/m.gguf") == LocalModel(here / "m.gguf")
    assert choose("org/model") == choose("./org/model") == LocalModel(here / "org" / "model")
    assert choose("other/model-1.5B") == HubModel("other/model-1.5B")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("", "No model was named"),
        ("embedder", "There is no model 'embedder' here; give \"starter\", a .gguf file"),
        ("missing.gguf", "There is no model"),
        ("org/missing.gguf", "There is no model"),
        ("./org/missing", "There is no model"),
        ("a/b/c", "There is no model"),
        ("--quota", "There is no model"),
        ("text.gguf", "is not a GGUF file"),
        ("org/model/model.safetensors", "give the folder"),
        ("old", "no .safetensors"),
        ("ggufs", "name the file itself: ggufs/a.gguf"),
        ("empty", "holds no model"),
        ("a\0b/c", "There is no model"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_not_understood_is_one_sentence(model: str, says: str) -> None:
    with pytest.raises(ModelError) as error:
        choose(model)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


async def test_a_local_model_is_used_where_it_lies(here: Path) -> None:
    assert await resolve("m.gguf", here / "models", lambda _: None) == here / "m.gguf"
    assert not (here / "models").exists()


async def test_a_hub_model_that_is_here_needs_no_network(here: Path) -> None:
    home = hub_home("o/m", here / "models")
    home.mkdir(parents=True)
    (home / COMPLETE).touch()
    assert await resolve("o/m", here / "models", lambda _: None) == home


async def test_a_hub_that_cannot_be_reached(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match=r"^o/m could not be downloaded: the Hugging Face hub cannot be reached"):
        await resolve("o/m", here / "models", lambda _: None)


def test_the_models_room_loads_nothing_heavy() -> None:
    code = (
        "import sys, app.models.resolve, app.models.listing;"
        "print([m for m in ('torch', 'numpy', 'gguf', 'huggingface_hub', 'httpx') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
