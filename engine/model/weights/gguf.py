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
from engine.model.decoder import DecoderWeights, LayerWeights
from engine.model.weights.gguf_reader import FastReader
from engine.types import ModelFileError, UnsupportedModelError


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
        return default if found is None else found.contents()

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
            factors = tuple(float(x) for x in self._floats("rope_freqs.weight").flatten())
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

    def _floats(self, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
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

    def weights(self, config: ModelConfig, dtype: torch.dtype, on_layer: Callable[[int], None]) -> DecoderWeights:
        """All weights in `dtype`, one layer at a time so that memory stays near the weights' own size."""

        def read(name: str) -> Tensor:
            return torch.from_numpy(self._floats(name)).to(dtype)

        def biases(names: list[str], turned: dict[str, int]) -> Tensor | None:
            if names[0] not in self._tensors:
                return None
            return torch.cat([_halves_paired(read(n), turned[n]) if n in turned else read(n) for n in names])

        embedding = read("token_embd.weight")
        layers = []
        for index in range(config.layers):
            prefix = f"blk.{index}."
            q_bias, k_bias, v_bias = (f"{prefix}attn_{n}.bias" for n in "qkv")
            q = _halves_paired(read(prefix + "attn_q.weight"), config.q_heads)
            k = _halves_paired(read(prefix + "attn_k.weight"), config.kv_heads)
            layers.append(
                LayerWeights(
                    attention_norm=read(prefix + "attn_norm.weight"),
                    qkv=torch.cat((q, k, read(prefix + "attn_v.weight"))),
                    out=read(prefix + "attn_output.weight"),
                    mlp_norm=read(prefix + "ffn_norm.weight"),
                    gate_up=torch.cat((read(prefix + "ffn_gate.weight"), read(prefix + "ffn_up.weight"))),
                    down=read(prefix + "ffn_down.weight"),
                    qkv_bias=biases([q_bias, k_bias, v_bias], {q_bias: config.q_heads, k_bias: config.kv_heads}),
                    out_bias=biases([prefix + "attn_output.bias"], {}),
                    gate_up_bias=biases([prefix + "ffn_gate.bias", prefix + "ffn_up.bias"], {}),
                    down_bias=biases([prefix + "ffn_down.bias"], {}),
                )
            )
            on_layer(index + 1)
        head = embedding if config.tied_embeddings else read("output.weight")
        return DecoderWeights(embedding=embedding, layers=tuple(layers), norm=read("output_norm.weight"), head=head)


def _halves_paired(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp stores q and k of the llama family so that neighbouring dimensions are rotated together; the
    decoder pairs the halves of a head, as Hugging Face does. `weight` is a matrix `[rows, columns]` or a bias."""
    rows = weight.shape[0]
    return weight.view(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)
