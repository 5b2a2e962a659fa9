"""One GGUF file: config, weights (dequantised by the gguf library, or as stored) and the parts of the tokenizer."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from torch import Tensor

from engine.model.config import ModelConfig, Norms
from engine.model.families import Family
from engine.model.linear import WeightForm
from engine.model.weights.assemble import ExpertNames, TensorNames, TensorSource, row_ranges
from engine.model.weights.gguf_config import family_of, read_config
from engine.model.weights.gguf_reader import FastReader, UnknownTypeError
from engine.model.weights.grouped import Grouped, Rows
from engine.types import ModelFileError, UnsupportedModelError
from kernels.cpu.packed_weights import GROUP

_READABLE = "take a file in F16, Q8_0, Q4_0, Q4_1 or a K-quant"
_EXPERTS = ExpertNames("ffn_gate_inp", ("ffn_gate_exps.weight", "ffn_up_exps.weight"), "ffn_down_exps.weight")


def _names(family: Family) -> TensorNames:
    """llama.cpp's names."""
    before, after = family.norms is not Norms.AFTER, family.norms is not Norms.BEFORE
    return TensorNames(
        embedding="token_embd.weight",
        norm="output_norm.weight",
        head="output.weight",
        layer="blk.{}.",
        qkv=("attn_qkv",) if family.fused else ("attn_q", "attn_k", "attn_v"),
        out="attn_output",
        gate_up=("ffn_up",) if family.fused else ("ffn_gate", "ffn_up"),
        down="ffn_down",
        q_norm="attn_q_norm",
        k_norm="attn_k_norm",
        attention_norm="attn_norm" if before else None,
        attention_post_norm="post_attention_norm" if after else None,
        mlp_norm="ffn_norm" if before else None,
        mlp_post_norm="post_ffw_norm" if after else None,
        experts=_EXPERTS,
    )


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """The tokenizer's parts as the file holds them. `types` follow llama.cpp, see `engine.text.vocabulary`.

    `scores` are those of SentencePiece's pieces; `add_space_prefix` is whether a mark for a space goes before a text.
    `add_bos` None means that the file does not say.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]
    bos: int | None
    eos: int | None
    add_bos: bool | None
    add_space_prefix: bool
    template: str | None


class GgufFile:
    """An opened GGUF file. Raises ModelFileError when it is missing, truncated or no GGUF."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ModelFileError(f"there is no model file {path}")
        try:
            self._reader = FastReader(str(path))
        except UnknownTypeError as error:
            raise UnsupportedModelError(
                f"{path.name} stores '{error.tensor[:40]}' as type {error.code}, which is not known here; {_READABLE}"
            ) from error
        except (ValueError, LookupError, OSError, RuntimeError, ArithmeticError, TypeError, struct.error) as error:
            raise ModelFileError(f"{path.name} is no whole GGUF file ({error}); fetch it again") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def field(self, key: str, default: Any = None) -> Any:
        """A metadata field's value. Raises ModelFileError when it is broken."""
        found = self._reader.get_field(key)
        try:
            return default if found is None else found.contents()
        except (ValueError, LookupError) as error:
            raise ModelFileError(f"{self.path.name} holds a broken field '{key}' ({error}); fetch it again") from error

    def need(self, key: str) -> Any:
        """A metadata field's value. Raises ModelFileError when it is missing or broken."""
        value = self.field(key)
        if value is None:
            raise ModelFileError(f"{self.path.name} lacks the field '{key}'; fetch it again or take another file")
        return value

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def config(self) -> ModelConfig:
        """The model's shapes. Raises UnsupportedModelError for a family that the engine does not run."""
        return read_config(self)

    def tokenizer(self) -> GgufTokenizer:
        """The tokenizer's parts. Raises ModelFileError when there are none."""
        return GgufTokenizer(
            model=str(self.need("tokenizer.ggml.model")),
            pre=str(self.field("tokenizer.ggml.pre", "default")),
            tokens=[str(token) for token in self.need("tokenizer.ggml.tokens")],
            types=[int(kind) for kind in self.field("tokenizer.ggml.token_type", [])],
            scores=[float(score) for score in self.field("tokenizer.ggml.scores", [])],
            merges=[str(merge) for merge in self.field("tokenizer.ggml.merges", [])],
            bos=self.field("tokenizer.ggml.bos_token_id"),
            eos=self.field("tokenizer.ggml.eos_token_id"),
            add_bos=self.field("tokenizer.ggml.add_bos_token"),
            add_space_prefix=bool(self.field("tokenizer.ggml.add_space_prefix", True)),
            template=self.field("tokenizer.chat_template"),
        )

    def _tensor(self, name: str) -> Any:
        if name not in self._tensors:
            raise ModelFileError(f"{self.path.name} lacks the tensor '{name}'; fetch it again or take another file")
        return self._tensors[name]

    def form(self) -> WeightForm:
        """The form that holds the file's own numbers as they are, where there is one: 4 bits for Q4_1, 8 for Q8_0."""
        matrices = {name: tensor.tensor_type for name, tensor in self._tensors.items() if len(tensor.shape) > 1}
        layers = {kind for name, kind in matrices.items() if name.startswith("blk.")}
        ends = {kind for name, kind in matrices.items() if not name.startswith("blk.")}
        if ends != {GGMLQuantizationType.Q8_0}:
            return WeightForm.FULL
        forms = {GGMLQuantizationType.Q4_1: WeightForm.INT4, GGMLQuantizationType.Q8_0: WeightForm.INT8}
        return forms.get(layers.pop(), WeightForm.FULL) if len(layers) == 1 else WeightForm.FULL

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of this name."""
        return name in self._tensors

    def rows(self, name: str) -> int:
        """Rows of a tensor. Raises ModelFileError when it is missing."""
        return int(self._tensor(name).shape[-1])

    def numbers(self, name: str) -> tuple[float, ...]:
        """All values of a small tensor, () when there is none."""
        return tuple(float(x) for x in self.floats(name).flatten()) if self.has(name) else ()

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape. Raises ModelFileError when it is missing, UnsupportedModelError when it cannot be read."""
        tensor = self._tensor(name)
        if not _readable(tensor.tensor_type):
            raise UnsupportedModelError(
                f"{self.path.name} stores '{name}' as {tensor.tensor_type.name}, which cannot be read; {_READABLE}"
            )
        return tuple(int(n) for n in reversed(tensor.shape))

    def floats(self, name: str, rows: slice = slice(None)) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A tensor's values, or those of some of its rows, dequantised. Raises what `shape` raises."""
        shape, tensor = self.shape(name), self._tensor(name)
        some = tensor.data[rows]
        stored = some.reshape(-1, some.shape[-1])
        # Quantised blocks lie one after another, so many rows may be read as one; the library works through 16 rows
        # at a time, and for rows of 576 numbers that costs 2.6 times as much as for rows of 18432.
        fold = math.gcd(stored.shape[0], 32)
        values = dequantize(stored.reshape(-1, stored.shape[1] * fold), tensor.tensor_type)
        values = np.asarray(values, dtype=np.float32).reshape(len(some), *shape[1:])
        # Unquantised values are a view of the file, which is closed to writing and may not outlive this reader.
        values = values if values.flags.writeable else values.copy()
        self._reader.release(tensor)
        return values

    def grouped(self, name: str, rows: slice = slice(None)) -> Grouped | None:
        """A matrix as the file holds it, or some of its rows; None unless it is one of Q4_1 or Q8_0. Raises what
        `shape` raises."""
        (_, columns), tensor = self.shape(name), self._tensor(name)
        if tensor.tensor_type not in (GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0):
            return None
        blocks = torch.from_numpy(np.array(tensor.data[rows]))
        blocks = blocks.view(len(blocks), columns // GROUP, -1)
        self._reader.release(tensor)
        bounds = 2 if tensor.tensor_type is GGMLQuantizationType.Q4_1 else 1
        scale, *minimum = blocks[..., : 2 * bounds].contiguous().view(torch.float16).unbind(-1)
        stored = blocks[..., 2 * bounds :]
        if minimum:
            return Grouped(torch.cat((stored & 15, stored >> 4), dim=-1).flatten(1), scale, minimum[0])
        return Grouped(stored.contiguous().view(torch.int8).flatten(1), scale, None)

    def tensors(self, config: ModelConfig, dtype: torch.dtype) -> tuple[TensorSource, TensorNames]:
        """The weights, to be read in `dtype`, and their names."""
        family = family_of(self)
        return _Tensors(self, config, family.interleaved, dtype), _names(family)


@dataclass(frozen=True, slots=True)
class _Tensors:
    """The tensors of a file as the decoder wants them."""

    file: GgufFile
    config: ModelConfig
    interleaved: bool
    dtype: torch.dtype

    def has(self, name: str) -> bool:
        return self.file.has(name)

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        found = self.file.shape(name)
        if found != shape:
            raise ModelFileError(
                f"{self.file.path.name} holds '{name}' in the shape {list(found)} where its own fields say "
                f"{list(shape)}; fetch it again"
            )

    def pieces(self, name: str, shape: tuple[int, int]) -> Iterator[Rows]:
        self.check(name, shape)
        # The pairs of an interleaved matrix lie all over its head, so it is taken whole.
        ranges = [(0, shape[0])] if self._interleaved_heads(name) else row_ranges(shape)
        for first, last in ranges:
            held = self.file.grouped(name, slice(first, last))
            if held is None:
                values = torch.from_numpy(self.file.floats(name, slice(first, last))).to(self.dtype)
                yield self._paired(name, values)
            else:
                minimum = None if held.minimum is None else self._paired(name, held.minimum)
                yield Grouped(self._paired(name, held.numbers), self._paired(name, held.scale), minimum)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self.check(name, shape)
        return self._paired(name, torch.from_numpy(self.file.floats(name)).to(self.dtype))

    def _interleaved_heads(self, name: str) -> int | None:
        if not self.interleaved:
            return None
        if ".attn_q." in name:
            return self.config.q_heads
        return self.config.kv_heads if ".attn_k." in name else None

    def _paired(self, name: str, tensor: Tensor) -> Tensor:
        heads = self._interleaved_heads(name)
        return tensor if heads is None else _halves_paired(tensor, heads)


def _halves_paired(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp stores q and k of some families (`Family.interleaved`) so that neighbouring dimensions are rotated
    together; the decoder pairs the halves of a head, as Hugging Face does. `weight` is a matrix `[rows, columns]` or a
    bias."""
    rows = weight.shape[0]
    return weight.view(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


@cache
def _readable(kind: GGMLQuantizationType) -> bool:
    """Whether the gguf library can dequantise this type: asked with one block."""
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except (NotImplementedError, KeyError):
        return False
    return True
