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
    source: TensorSource, names: TensorNames, config: ModelConfig, on_layer: Callable[[int], None]
) -> DecoderWeights:
    """All weights, one layer at a time so that memory stays near the weights' own size; `on_layer(done)` each time."""
    table = (config.vocab, config.hidden)
    embedding = source.read(names.embedding, table)
    layers = []
    for index in range(config.layers):
        layers.append(_layer(source, names, config, names.layer.format(index)))
        on_layer(index + 1)
    head = embedding if config.tied_embeddings else source.read(names.head, table)
    return DecoderWeights(embedding, tuple(layers), source.read(names.norm, (config.hidden,)), head)


def _layer(source: TensorSource, names: TensorNames, config: ModelConfig, prefix: str) -> LayerWeights:
    hidden, inner = config.hidden, config.intermediate

    def weight(width: int, parts: dict[str, int]) -> Tensor:
        return torch.cat([source.read(f"{prefix}{name}.weight", (rows, width)) for name, rows in parts.items()])

    def bias(parts: dict[str, int]) -> Tensor | None:
        if not any(source.has(f"{prefix}{name}.bias") for name in parts):
            return None
        return torch.cat([source.read(f"{prefix}{name}.bias", (rows,)) for name, rows in parts.items()])

    qkv = {names.q: config.q_width, names.k: config.kv_width, names.v: config.kv_width}
    gate_up = {names.gate: inner, names.up: inner}
    out, down = {names.out: hidden}, {names.down: hidden}
    return LayerWeights(
        attention_norm=source.read(f"{prefix}{names.attention_norm}.weight", (hidden,)),
        qkv=weight(hidden, qkv),
        out=weight(config.q_width, out),
        mlp_norm=source.read(f"{prefix}{names.mlp_norm}.weight", (hidden,)),
        gate_up=weight(hidden, gate_up),
        down=weight(inner, down),
        qkv_bias=bias(qkv),
        out_bias=bias(out),
        gate_up_bias=bias(gate_up),
        down_bias=bias(down),
    )
