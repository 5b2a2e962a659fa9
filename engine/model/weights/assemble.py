"""Puts a decoder's weights together from single tensors, whatever file form they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.decoder import DecoderWeights, LayerWeights


@dataclass(frozen=True, slots=True)
class TensorNames:
    """What a file form calls its tensors. `layer` is the prefix of a layer's, with its index to be filled in; a linear
    map has ".weight" and maybe ".bias" after its name."""

    embedding: str
    norm: str
    head: str
    layer: str
    attention_norm: str
    q: str
    k: str
    v: str
    out: str
    mlp_norm: str
    gate: str
    up: str
    down: str


class TensorSource(Protocol):
    """An opened model file, by tensor."""

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor, in the type that the decoder wants and with the halves of a head paired.

        Raises ModelFileError when it is missing, damaged or of another shape.
        """


def assemble(
    source: TensorSource,
    names: TensorNames,
    config: ModelConfig,
    device: torch.device,
    on_layer: Callable[[int], None],
) -> DecoderWeights:
    """All weights on `device`, laid out for it; `on_layer(done)` after each layer.

    Each tensor goes to its last place before the next is read, so that memory stays near the weights' own size.
    """
    table = (config.vocab, config.hidden)
    embedding = _tall(source.read(names.embedding, table), device)
    layers = []
    for index in range(config.layers):
        layers.append(_layer(source, names, config, device, names.layer.format(index)))
        on_layer(index + 1)
    head = embedding if config.tied_embeddings else _tall(source.read(names.head, table), device)
    return DecoderWeights(embedding, tuple(layers), source.read(names.norm, (config.hidden,)).to(device), head)


def _tall(weight: Tensor, device: torch.device) -> Tensor:
    """A tall matrix where it stays; on a CPU with its columns contiguous.

    For one token, MKL reads a tall matrix faster so: 8.9 instead of 14.6 ms for 49152 x 576, 0.63 instead of 1.05 ms
    for 3072 x 576 (float32, one thread); from 128 tokens on there is no difference, nor for wide matrices.
    """
    return weight.t().contiguous().t() if device.type == "cpu" else weight.to(device)


def _layer(
    source: TensorSource, names: TensorNames, config: ModelConfig, device: torch.device, prefix: str
) -> LayerWeights:
    hidden, inner = config.hidden, config.intermediate

    def vector(name: str, rows: int) -> Tensor:
        return source.read(prefix + name, (rows,)).to(device)

    def weight(width: int, parts: dict[str, int]) -> Tensor:
        return torch.cat([source.read(f"{prefix}{name}.weight", (rows, width)) for name, rows in parts.items()])

    def bias(parts: dict[str, int]) -> Tensor | None:
        if not any(source.has(f"{prefix}{name}.bias") for name in parts):
            return None
        return torch.cat([vector(f"{name}.bias", rows) for name, rows in parts.items()])

    qkv = {names.q: config.q_width, names.k: config.kv_width, names.v: config.kv_width}
    gate_up = {names.gate: inner, names.up: inner}
    out, down = {names.out: hidden}, {names.down: hidden}
    return LayerWeights(
        attention_norm=vector(f"{names.attention_norm}.weight", hidden),
        qkv=_tall(weight(hidden, qkv), device),
        out=weight(config.q_width, out).to(device),
        mlp_norm=vector(f"{names.mlp_norm}.weight", hidden),
        gate_up=_tall(weight(hidden, gate_up), device),
        down=weight(inner, down).to(device),
        qkv_bias=bias(qkv),
        out_bias=bias(out),
        gate_up_bias=bias(gate_up),
        down_bias=bias(down),
    )
