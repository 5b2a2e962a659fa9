"""Puts a decoder's weights together from single tensors, whatever file form they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.decoder import DecoderWeights, LayerWeights
from engine.model.linear import DenseLinear, dense


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
    embedding = dense(source.read(names.embedding, table), None, device)
    layers = []
    for index in range(config.layers):
        layers.append(_layer(source, names, config, device, names.layer.format(index)))
        on_layer(index + 1)
    head = embedding if config.tied_embeddings else dense(source.read(names.head, table), None, device)
    return DecoderWeights(embedding, tuple(layers), source.read(names.norm, (config.hidden,)).to(device), head)


def _layer(
    source: TensorSource, names: TensorNames, config: ModelConfig, device: torch.device, prefix: str
) -> LayerWeights:
    hidden, inner = config.hidden, config.intermediate

    def vector(name: str, rows: int) -> Tensor:
        return source.read(prefix + name, (rows,))

    def linear(width: int, parts: dict[str, int]) -> DenseLinear:
        weight = torch.cat([source.read(f"{prefix}{name}.weight", (rows, width)) for name, rows in parts.items()])
        biased = any(source.has(f"{prefix}{name}.bias") for name in parts)
        bias = torch.cat([vector(f"{name}.bias", rows) for name, rows in parts.items()]) if biased else None
        return dense(weight, bias, device)

    return LayerWeights(
        attention_norm=vector(f"{names.attention_norm}.weight", hidden).to(device),
        qkv=linear(hidden, {names.q: config.q_width, names.k: config.kv_width, names.v: config.kv_width}),
        out=linear(config.q_width, {names.out: hidden}),
        mlp_norm=vector(f"{names.mlp_norm}.weight", hidden).to(device),
        gate_up=linear(hidden, {names.gate: inner, names.up: inner}),
        down=linear(inner, {names.down: hidden}),
    )
