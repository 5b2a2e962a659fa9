"""One GGUF file: config, weights (dequantised by the gguf library) and the parts of the tokenizer."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import dequantize
from torch import Tensor

from engine.model.config import ModelConfig, RopeConfig
from engine.model.decoder import DecoderWeights
from engine.model.weights.assemble import TensorNames, assemble
from engine.model.weights.gguf_reader import FastReader
from engine.types import ModelFileError, UnsupportedModelError

_NAMES = TensorNames(
    embedding="token_embd.weight",
    norm="output_norm.weight",
    head="output.weight",
    layer="blk.{}.",
    attention_norm="attn_norm",
    q="attn_q",
    k="attn_k",
    v="attn_v",
    out="attn_output",
    mlp_norm="ffn_norm",
    gate="ffn_gate",
    up="ffn_up",
    down="ffn_down",
)


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """The tokenizer's parts as the file holds them. `types` follow llama.cpp: 3 is control, 4 user-defined.

    `add_bos` None means that the file does not say.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    bos: int | None
    eos: int | None
    add_bos: bool | None
    template: str | None


class GgufFile:
    """An opened GGUF file. Raises ModelFileError when it is missing, truncated or no GGUF."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ModelFileError(f"there is no model file {path}")
        try:
            self._reader = FastReader(str(path))
        except (ValueError, LookupError, OSError, RuntimeError, ArithmeticError, TypeError, struct.error) as error:
            raise ModelFileError(f"{path.name} is no whole GGUF file ({error}); fetch it again") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def _field(self, key: str, default: Any = None) -> Any:
        found = self._reader.get_field(key)
        try:
            return default if found is None else found.contents()
        except (ValueError, LookupError) as error:
            raise ModelFileError(f"{self.path.name} holds a broken field '{key}' ({error}); fetch it again") from error

    def _need(self, key: str) -> Any:
        value = self._field(key)
        if value is None:
            raise ModelFileError(f"{self.path.name} lacks the field '{key}'; fetch it again or take another file")
        return value

    def config(self) -> ModelConfig:
        """The model's shapes. Raises UnsupportedModelError for a family that the engine does not run."""
        family = str(self._need("general.architecture"))
        if family != "llama":
            raise UnsupportedModelError(
                f"{self.path.name} holds a model of the family '{family}'; this engine runs the family llama"
            )
        if self._field("llama.expert_count", 0):
            raise UnsupportedModelError(
                f"{self.path.name} is a mixture of experts, which this engine does not run; take a dense llama model"
            )
        try:
            return self._shapes(family)
        except (TypeError, ValueError) as error:
            raise ModelFileError(
                f"{self.path.name} holds a field of the wrong kind ({error}); fetch it again"
            ) from error

    def _shapes(self, family: str) -> ModelConfig:
        hidden, q_heads = int(self._need("llama.embedding_length")), int(self._need("llama.attention.head_count"))
        head_dim = int(self._field("llama.attention.key_length", hidden // q_heads))
        rotated = int(self._field("llama.rope.dimension_count", head_dim))
        if rotated != head_dim:
            raise UnsupportedModelError(
                f"{self.path.name} rotates {rotated} of a head's {head_dim} dimensions; this engine rotates all"
            )
        return ModelConfig(
            name=str(self._field("general.name", self.path.stem)),
            family=family,
            vocab=int(self._tensor("token_embd.weight").shape[1]),
            hidden=hidden,
            layers=int(self._need("llama.block_count")),
            q_heads=q_heads,
            kv_heads=int(self._field("llama.attention.head_count_kv", q_heads)),
            head_dim=head_dim,
            intermediate=int(self._need("llama.feed_forward_length")),
            norm_eps=float(self._need("llama.attention.layer_norm_rms_epsilon")),
            context=int(self._need("llama.context_length")),
            tied_embeddings="output.weight" not in self._tensors,
            rope=self._rope(),
            stop_ids=self._stop_ids(),
        )

    def _stop_ids(self) -> tuple[int, ...]:
        named = (self._field(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
        return tuple(dict.fromkeys(int(i) for i in named if i is not None))

    def _rope(self) -> RopeConfig:
        factors: tuple[float, ...] = ()
        if "rope_freqs.weight" in self._tensors:
            factors = tuple(float(x) for x in self.floats("rope_freqs.weight").flatten())
        kind = str(self._field("llama.rope.scaling.type", "none"))
        return RopeConfig(
            theta=float(self._field("llama.rope.freq_base", 10000.0)),
            kind="default" if kind == "none" else kind,
            factor=float(self._field("llama.rope.scaling.factor", 1.0)),
            frequency_factors=factors,
        )

    def tokenizer(self) -> GgufTokenizer:
        """The tokenizer's parts. Raises ModelFileError when there are none."""
        return GgufTokenizer(
            model=str(self._need("tokenizer.ggml.model")),
            pre=str(self._field("tokenizer.ggml.pre", "default")),
            tokens=[str(token) for token in self._need("tokenizer.ggml.tokens")],
            types=[int(kind) for kind in self._field("tokenizer.ggml.token_type", [])],
            merges=[str(merge) for merge in self._field("tokenizer.ggml.merges", [])],
            bos=self._field("tokenizer.ggml.bos_token_id"),
            eos=self._field("tokenizer.ggml.eos_token_id"),
            add_bos=self._field("tokenizer.ggml.add_bos_token"),
            template=self._field("tokenizer.chat_template"),
        )

    def _tensor(self, name: str) -> Any:
        if name not in self._tensors:
            raise ModelFileError(f"{self.path.name} lacks the tensor '{name}'; fetch it again or take another file")
        return self._tensors[name]

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of this name."""
        return name in self._tensors

    def floats(self, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A tensor's values, dequantised. Raises ModelFileError or UnsupportedModelError."""
        tensor = self._tensor(name)
        stored = np.atleast_2d(tensor.data)
        # Quantised blocks lie one after another, so many rows may be read as one; the library works through 16 rows
        # at a time, and for rows of 576 numbers that costs 2.6 times as much as for rows of 18432.
        fold = math.gcd(stored.shape[0], 32)
        try:
            values = dequantize(stored.reshape(-1, stored.shape[1] * fold), tensor.tensor_type)
        except (NotImplementedError, KeyError) as error:
            raise UnsupportedModelError(
                f"{self.path.name} stores '{name}' as {tensor.tensor_type.name}, which cannot be read; "
                "take a file in F16, Q8_0, Q4_0, Q4_1 or a K-quant"
            ) from error
        values = np.asarray(values, dtype=np.float32).reshape(tuple(int(n) for n in reversed(tensor.shape)))
        # Unquantised values are a view of the file, which is closed to writing and may not outlive this reader.
        return values if values.flags.writeable else values.copy()

    def weights(
        self, config: ModelConfig, dtype: torch.dtype, device: torch.device, on_layer: Callable[[int], None]
    ) -> DecoderWeights:
        """All weights in `dtype` on `device`. Raises ModelFileError when one is missing or of another shape."""
        return assemble(_Tensors(self, config, dtype), _NAMES, config, device, on_layer)


@dataclass(frozen=True, slots=True)
class _Tensors:
    """The tensors of a file as the decoder wants them."""

    file: GgufFile
    config: ModelConfig
    dtype: torch.dtype

    def has(self, name: str) -> bool:
        return self.file.has(name)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        values = self.file.floats(name)
        if values.shape != shape:
            raise ModelFileError(
                f"{self.file.path.name} holds '{name}' in the shape {list(values.shape)} where its own fields say "
                f"{list(shape)}; fetch it again"
            )
        tensor = torch.from_numpy(values).to(self.dtype)
        if f".{_NAMES.q}." in name:
            return _halves_paired(tensor, self.config.q_heads)
        return _halves_paired(tensor, self.config.kv_heads) if f".{_NAMES.k}." in name else tensor


def _halves_paired(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp stores q and k of the llama family so that neighbouring dimensions are rotated together; the
    decoder pairs the halves of a head, as Hugging Face does. `weight` is a matrix `[rows, columns]` or a bias."""
    rows = weight.shape[0]
    return weight.view(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)
