"""What a model's weights take in main memory in each form, from the shapes in its file alone. The engine's own plan
must agree (tests)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class WeightForm(StrEnum):
    """How weights are held: as the model runs on a CPU (float32; a GPU's bf16 takes half), or quantised at load."""

    FULL = "full"
    INT8 = "int8"
    INT4 = "int4"


@dataclass(frozen=True, slots=True)
class WeightCost:
    """All weights of a model in one form, scales included."""

    form: WeightForm
    bytes: int


@dataclass(frozen=True, slots=True)
class Shape:
    """One tensor of a model's file; `sizes` `[..., rows, columns]`, or of one dimension for norms and biases."""

    name: str
    sizes: tuple[int, ...]


_FLOAT, _GROUP, _TILE = 4, 32, 16
"""Bytes of a float32; columns that share a scale, and rows that lie together, in a quantised weight."""
_TABLES = ("embed_tokens.weight", "lm_head.weight", "token_embd.weight")
_HEADS = ("lm_head.weight", "output.weight")
_ROUTERS = (".mlp.gate.weight", "ffn_gate_inp.weight")
_STACKED = (".experts.gate_up_proj", ".experts.down_proj")


def gguf_shapes(tensors: Iterable[Shape]) -> Iterator[Shape]:
    """The weights among a GGUF file's tensors: numbers of the rotation are none."""
    return (tensor for tensor in tensors if not tensor.name.startswith("rope_"))


def folder_shapes(folder: Path, *, tied: bool) -> Iterator[Shape]:
    """The weights in a folder's safetensors headers; of a model that also sees, the language model's alone. A `tied`
    head is the embedding and counts once. Raises OSError and ValueError for a file that is not whole."""
    shapes = [shape for file in sorted(folder.glob("*.safetensors")) for shape in _in_header(file)]
    also_sees = any("language_model." in shape.name for shape in shapes)
    for shape in shapes:
        is_head = shape.name.endswith(_HEADS)
        if not (is_head and tied) and (is_head or not also_sees or "language_model." in shape.name):
            yield shape


def weight_costs(shapes: Iterable[Shape]) -> tuple[WeightCost, ...]:
    """The bytes in each form; () where there are no weights."""
    counted = [shape for shape in shapes if shape.name.endswith((".weight", ".bias", *_STACKED))]
    return tuple(WeightCost(form, sum(_bytes(shape, form) for shape in counted)) for form in WeightForm if counted)


def _bytes(shape: Shape, form: WeightForm) -> int:
    whole = len(shape.sizes) < 2 or shape.name.endswith(_ROUTERS)
    if form is WeightForm.FULL or whole:
        return _FLOAT * math.prod(shape.sizes)
    # The embedding and the head stay in 8 bits, and so does what is not whole groups.
    is_table = shape.name.endswith(_TABLES) or shape.name == "output.weight"
    *lots, rows, columns = shape.sizes
    bits = 4 if form is WeightForm.INT4 and not is_table and columns % _GROUP == 0 else 8
    return math.prod(lots) * _quantised(rows, columns, bits)


def _quantised(rows: int, columns: int, bits: int) -> int:
    """Whole tiles and groups: the numbers of a group and its scale in float16, in 4 bits also a minimum."""
    group_bytes = _GROUP + 2 if bits == 8 else _GROUP // 2 + 4
    return -(-rows // _TILE) * _TILE * -(-columns // _GROUP) * group_bytes


def _in_header(file: Path) -> Iterator[Shape]:
    """Names and shapes in a safetensors file: 8 bytes that say how long the JSON is that follows."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    for name, tensor in header.items():
        if name != "__metadata__":
            yield Shape(name, tuple(tensor["shape"]))
