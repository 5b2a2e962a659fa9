"""Damaged model files of every kind: one sentence with the file's own values, never another exception."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.model.load import load_model
from engine.types import EngineError, ModelFileError, UnsupportedModelError
from tests.engine.gguf_files import write_gguf
from tests.engine.helpers import one_sentence
from tests.engine.tiny import CPU, write_llama

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_llama(folder, shard_size="60KB", num_hidden_layers=2)
    return folder


def refused(path: Path) -> str:
    """The sentence of a file that must not be loaded."""
    with pytest.raises((ModelFileError, UnsupportedModelError)) as error:
        load_model(path, device=CPU, dtype=torch.float32)
    return one_sentence(error.value)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


@given(st.data())
@FEW
def test_a_cut_shard_is_refused(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    copy = shutil.copytree(whole, tmp_path / "m", dirs_exist_ok=True)
    shard = data.draw(st.sampled_from(shards(copy)))
    content = shard.read_bytes()
    shard.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert shard.name in refused(copy)


@given(st.data())
@FEW
def test_a_damaged_shard_header_never_leaks_another_error(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    copy = shutil.copytree(whole, tmp_path / "m", dirs_exist_ok=True)
    shard = data.draw(st.sampled_from(shards(copy)))
    content = bytearray(shard.read_bytes())
    header = 8 + struct.unpack_from("<Q", content)[0]
    for place in data.draw(st.lists(st.integers(0, header - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    shard.write_bytes(content)
    try:
        load_model(copy, device=CPU, dtype=torch.float32)
    except EngineError as error:
        one_sentence(error)


VALUES = st.none() | st.booleans() | st.integers(-3, 10**6) | st.floats(0, 10) | st.text(max_size=3) | st.just([])


@given(st.data())
@FEW
def test_a_config_with_any_field_gone_or_strange_never_leaks(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    copy = shutil.copytree(whole, tmp_path / "m", dirs_exist_ok=True)
    config = json.loads((copy / "config.json").read_text())
    field = data.draw(st.sampled_from(sorted(config)))
    if data.draw(st.booleans()):
        del config[field]
    else:
        config[field] = data.draw(VALUES | st.dictionaries(st.text(max_size=2), VALUES, max_size=1))
    (copy / "config.json").write_text(json.dumps(config))
    try:
        load_model(copy, device=CPU, dtype=torch.float32)
    except EngineError as error:
        one_sentence(error)


def edit_index(change: Callable[[dict[str, str]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))

    return spoil


def only_pickles(folder: Path) -> None:
    for file in [*shards(folder), folder / "model.safetensors.index.json"]:
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")


HEAD = "model.norm.weight"
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a tensor in the wrong shard": (
        edit_index(lambda of: of.update({HEAD: next(f for f in of.values() if f != of[HEAD])})),
        HEAD,
    ),
    "a tensor that the index leaves out": (edit_index(lambda of: of.pop(HEAD)), HEAD),
    "a shard that is not there": (edit_index(lambda of: of.update({HEAD: "lost.safetensors"})), "lost.safetensors"),
    "pickles": (only_pickles, "pytorch_model.bin"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json"),
}


@pytest.mark.parametrize(("spoil", "word"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_named(whole: Path, tmp_path: Path, spoil: Callable[[Path], Any], word: str) -> None:
    copy = shutil.copytree(whole, tmp_path / "m")
    spoil(copy)
    assert word in refused(copy)


def test_nothing_is_read_before_all_shapes_are_checked(whole: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(whole, tmp_path / "m")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"intermediate_size": 95}))
    from engine.model.load import open_model

    with pytest.raises(ModelFileError) as error:
        open_model(copy, device=CPU, dtype=torch.float32).weights_bytes()
    assert "[96, 48]" in one_sentence(error.value)
    assert "[95, 48]" in str(error.value)


@pytest.fixture(scope="module")
def whole_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from tests.engine.test_families import llama_in_blocks

    folder = tmp_path_factory.mktemp("gguf")
    write_gguf(folder / "m.gguf", llama_in_blocks(folder / "hf", num_hidden_layers=1))
    return (folder / "m.gguf").read_bytes()


@pytest.mark.parametrize(("code", "word"), [(4242, "4242"), (24, "I8")])
def test_an_unknown_type_is_named(tmp_path: Path, whole_gguf: bytes, code: int, word: str) -> None:
    name = b"blk.0.ffn_down.weight"
    at = whole_gguf.index(name) + len(name) + 4 + 2 * 8
    spoilt = bytearray(whole_gguf)
    assert np.frombuffer(spoilt, np.uint32, 1, at)[0] == 0
    struct.pack_into("<I", spoilt, at, code)
    (tmp_path / "m.gguf").write_bytes(spoilt)
    with pytest.raises(UnsupportedModelError) as error:
        load_model(tmp_path / "m.gguf", device=CPU, dtype=torch.float32)
    assert word in one_sentence(error.value)
    assert name.decode() in str(error.value)


def test_lengths_in_a_gguf_header_never_hang_or_leak(tmp_path: Path, whole_gguf: bytes) -> None:
    path, rng = tmp_path / "m.gguf", random.Random(7)
    for _ in range(80):
        spoilt = bytearray(whole_gguf)
        at = rng.choice([8, 16, rng.randrange(24, 9000)])
        struct.pack_into("<Q", spoilt, at, rng.choice([0, 1, 2**31, 2**40, 2**63, 2**64 - 1, rng.getrandbits(64)]))
        path.write_bytes(spoilt)
        try:
            load_model(path, device=CPU, dtype=torch.float32)
        except EngineError as error:
            one_sentence(error)
