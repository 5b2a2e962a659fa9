"""Every family that the engine runs, as a tiny random model that transformers wrote: the same logits in float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file, save_file

from engine.model import families
from engine.types import UnsupportedModelError
from tests.engine.family_models import FAMILIES, GGUF_FAMILIES, NAMED, in_blocks, make_model, write_model
from tests.engine.gguf_files import write_gguf
from tests.engine.helpers import one_sentence
from tests.engine.judge import check_against, load


@pytest.mark.parametrize(("family", "changes"), FAMILIES, ids=NAMED)
def test_logits_are_those_of_transformers(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    theirs = make_model(family, **changes)
    write_model(tmp_path, theirs)
    check_against(load(tmp_path), theirs)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma3_text", "phi3"])
def test_a_folder_may_be_sharded(tmp_path: Path, family: str) -> None:
    theirs = make_model(family, **dict(reversed(FAMILIES))[family])
    write_model(tmp_path, theirs, shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    check_against(load(tmp_path), theirs)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_part_of_a_multimodal_gemma_3(tmp_path: Path, prefix: str) -> None:
    theirs = make_model("gemma3_text", **dict(FAMILIES)["gemma3_text"])
    write_model(tmp_path, theirs)
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    weights = load_file(tmp_path / "model.safetensors")
    save_file({prefix + name.removeprefix("model."): w for name, w in weights.items()}, tmp_path / "model.safetensors")
    check_against(load(tmp_path), theirs)


@pytest.mark.parametrize("name", ["mamba", "olmo3"])
def test_another_family_names_itself_and_what_is_run(tmp_path: Path, name: str) -> None:
    write_model(tmp_path, make_model("llama"))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": name}))
    with pytest.raises(UnsupportedModelError) as refused:
        load(tmp_path)
    sentence = one_sentence(refused.value)
    assert f"'{name}'" in sentence
    assert all(family.title in sentence for family in families.FAMILIES)


KINDS = [Kind.F16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]


GRID = [
    pytest.param(family, changes, kind, id=f"{family}-{kind.name}", marks=[pytest.mark.slow] * (f % len(KINDS) != k))
    for f, (family, changes) in enumerate(GGUF_FAMILIES)
    for k, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(("family", "changes", "kind"), GRID)
def test_a_gguf_file_of_every_family(tmp_path: Path, family: str, changes: dict[str, Any], kind: Kind) -> None:
    theirs = in_blocks(family, changes)
    write_gguf(tmp_path / "m.gguf", theirs, kind)
    check_against(load(tmp_path / "m.gguf"), theirs)
