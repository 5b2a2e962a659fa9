from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gguf import GGUFWriter

from app.models import manifest
from app.models.errors import ModelError
from app.models.hub import COMPLETE, hub_home
from app.models.listing import list_models, read_local


def write_gguf(path: Path, *, kv_heads: int | None, key_length: int | None) -> None:
    writer = GGUFWriter(path, "qwen3")
    writer.add_name("Small One")
    writer.add_license("mit")
    writer.add_block_count(4)
    writer.add_embedding_length(96)
    writer.add_head_count(6)
    if kv_heads is not None:
        writer.add_head_count_kv(kv_heads)
    if key_length is not None:
        writer.add_key_length(key_length)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("kv_heads", "key_length", "expected"),
    [(2, 32, 2 * 4 * 2 * 32 * 2), (None, None, 2 * 4 * 6 * 16 * 2), (3, None, 2 * 4 * 3 * 16 * 2)],
)
def test_a_gguf_header(tmp_path: Path, kv_heads: int | None, key_length: int | None, expected: int) -> None:
    path = tmp_path / "small.gguf"
    write_gguf(path, kv_heads=kv_heads, key_length=key_length)
    row = read_local(path)
    assert (row.title, row.family, row.licence, row.kv_bytes_per_token) == ("Small One", "qwen3", "mit", expected)
    assert row.bytes == path.stat().st_size


def folder(home: Path, config: dict[str, object]) -> Path:
    home.mkdir(parents=True)
    (home / "config.json").write_text(json.dumps(config))
    (home / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\nlicense: no\n")
    header = json.dumps({"__metadata__": {}, "model.norm.weight": {"dtype": "F32", "shape": [250]}}).encode()
    (home / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1000))
    return home


@pytest.mark.parametrize("nested", [False, True])
def test_a_folder(tmp_path: Path, nested: bool) -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 64}
    config: dict[str, object] = (
        {"model_type": "gemma3", "text_config": sizes}
        if nested
        else {
            "model_type": "gemma3",
            **sizes,
        }
    )
    row = read_local(folder(tmp_path / "m", config))
    assert (row.family, row.kv_bytes_per_token, row.licence) == ("gemma3", 2 * 2 * 1 * 16 * 2, "apache-2.0")
    assert row.bytes > 1000


def test_the_list_shows_all_and_one_bad_file_hides_none(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8, "hidden_size": 64}
    write_gguf(tmp_path / "own.gguf", kv_heads=2, key_length=32)
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\x03\0\0\0garbage")
    (folder(hub_home("org/big", tmp_path), {"model_type": "llama", **sizes}) / COMPLETE).touch()
    folder(hub_home("org/half", tmp_path), {"model_type": "llama", **sizes})
    starter, embedder, bad, own, hub = list_models(tmp_path)
    assert (starter.name, starter.present, starter.kv_bytes_per_token) == ("starter", False, 23040)
    assert starter.bytes == manifest.entry("starter").bytes
    assert (embedder.name, embedder.present, embedder.kv_bytes_per_token) == ("embedder", False, None)
    assert bad.family == "unreadable"
    assert own.title == "Small One"
    assert (hub.title, hub.family) == ("org/big", "llama")


def test_reading_a_header_loads_no_torch(tmp_path: Path) -> None:
    write_gguf(tmp_path / "own.gguf", kv_heads=2, key_length=32)
    code = "import sys, pathlib; from app.models.listing import list_models; list_models(pathlib.Path(sys.argv[1]))"
    probe = f"{code}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("header", [b"", bytes(8), b"\xff" * 8, (9).to_bytes(8, "little") + b"[1, 2, 3]"])
def test_a_folder_whose_weights_are_not_whole_is_no_model(tmp_path: Path, header: bytes) -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    home = folder(tmp_path / "m", {"model_type": "llama", **sizes})
    (home / "model.safetensors").write_bytes(header)
    with pytest.raises(ModelError, match="cannot be read as a model"):
        read_local(home)


def test_a_missing_or_damaged_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    folder(tmp_path / "m", {"model_type": "llama"})
    for path in (tmp_path / "none.gguf", tmp_path / "bad.gguf", tmp_path / "m"):
        with pytest.raises(ModelError, match="cannot be read as a model"):
            read_local(path)
