"""What is said of weights in each form is what the engine will take, for every family and both kinds of file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import save_file

from app.models import manifest, weights
from app.models.listing import read_local
from app.models.weights import Shape, weight_costs
from engine.model.linear import WeightForm
from engine.model.load import open_model
from tests.engine.family_models import FAMILIES, GGUF_FAMILIES, NAMED, in_blocks, make_model, write_model
from tests.engine.gguf_files import write_gguf
from tests.models import starter_file

CPU = torch.device("cpu")


def planned(path: Path) -> dict[str, int]:
    """What the engine counts before it loads a model."""
    forms = {form: open_model(path, device=CPU, dtype=torch.float32, form=form) for form in WeightForm}
    return {form.value: opened.weights_bytes() for form, opened in forms.items()}


def told(path: Path) -> dict[str, int]:
    """What a person is told."""
    return {cost.form.value: cost.bytes for cost in read_local(path).weights}


def test_the_forms_are_those_of_the_engine() -> None:
    assert list(weights.WeightForm) == list(WeightForm)


@pytest.mark.parametrize(("family", "changes"), FAMILIES, ids=NAMED)
def test_a_folder_of_every_family(tmp_path: Path, family: str, changes: dict[str, object]) -> None:
    write_model(tmp_path, make_model(family, **changes), shard_size="60KB")
    assert told(tmp_path) == planned(tmp_path)


@pytest.mark.parametrize(
    ("family", "changes"), GGUF_FAMILIES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_file_of_every_family(tmp_path: Path, family: str, changes: dict[str, object]) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, in_blocks(family, changes), GGMLQuantizationType.Q8_0)
    assert told(path) == planned(path)


def test_the_starter_costs_what_its_manifest_says() -> None:
    path = starter_file()
    said = {cost.form.value: cost.bytes for cost in manifest.entry("starter").weights}
    assert said == told(path) == planned(path)


def test_what_sees_is_not_counted_and_a_tied_head_counts_once(tmp_path: Path) -> None:
    text = {"model.language_model.embed_tokens.weight": (64, 32), "model.language_model.norm.weight": (32,)}
    other = {"model.vision_tower.patch.weight": (1000, 32), "lm_head.weight": (64, 32)}
    save_file({name: torch.zeros(shape) for name, shape in (text | other).items()}, tmp_path / "model.safetensors")
    for tied, tables in ((True, 1), (False, 2)):
        full, int8, _ = weight_costs(weights.folder_shapes(tmp_path, tied=tied))
        assert full.bytes == 4 * (tables * 64 * 32 + 32)
        assert int8.bytes == tables * 64 * (32 + 2) + 4 * 32


def test_a_file_without_weights_costs_nothing_that_could_be_told() -> None:
    assert weight_costs([]) == ()
    assert weight_costs([Shape("rotary.inv_freq", (8,))]) == ()
