"""Puts a decoder's weights together from single tensors, whatever file form they come from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.model.config import Experts, ModelConfig, QkNorm
from engine.model.decoder import DecoderWeights, LayerWeights
from engine.model.linear import Linear
from engine.model.mlp import GatedMlp, MixtureOfExperts, Mlp
from engine.model.weights.grouped import Rows
from engine.model.weights.keep import Keeping

PIECE = 2**18
"""Values of a matrix that are read at a time: 1 MB in float32, small against any layer."""


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """What a file form calls the tensors of a mixture: the router, and each expert's or all experts' `[experts, ...]`.

    gate_up: the parts of the stacked first map, one name for each or one for both; `{}` in a name stands for the
    index of an expert.
    """

    router: str
    gate_up: tuple[str, ...]
    down: str


@dataclass(frozen=True, slots=True)
class TensorNames:
    """What a file form calls its tensors. `layer` is the prefix of a layer's, with its index to be filled in; a linear
    map has ".weight" and maybe ".bias" after its name.

    qkv, gate_up: the parts of the stacked maps, one name for each part or one for all. Norms are None where the
    family has none.
    """

    embedding: str
    norm: str
    head: str
    layer: str
    qkv: tuple[str, ...]
    out: str
    gate_up: tuple[str, ...]
    down: str
    q_norm: str
    k_norm: str
    attention_norm: str | None
    attention_post_norm: str | None
    mlp_norm: str | None
    mlp_post_norm: str | None
    experts: ExpertNames


class TensorSource(Protocol):
    """An opened model file, by tensor."""

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raises ModelFileError when the tensor is missing or of another shape, UnsupportedModelError when its type is
        not read. Reads no values."""

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor, in the type that the decoder wants and with the halves of a head paired.

        Raises what `check` raises, and ModelFileError when it is damaged.
        """

    def pieces(self, name: str, shape: tuple[int, int]) -> Iterator[Rows]:
        """The rows of a matrix, some at a time: what is to be quantised is never there as a whole. Raises as `read`."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A file's tensors without their values, to count what assembling them will take."""

    source: TensorSource
    dtype: torch.dtype

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return self.source.has(name)

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """As the file's own."""
        self.source.check(name, shape)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor of this shape, of one value in memory."""
        self.source.check(name, shape)
        return torch.zeros((), dtype=self.dtype).expand(shape)

    def pieces(self, name: str, shape: tuple[int, int]) -> Iterator[Tensor]:
        """The same, in one piece."""
        return iter([self.read(name, shape)])


def assemble(
    source: TensorSource, names: TensorNames, config: ModelConfig, keeper: Keeping, on_layer: Callable[[int], None]
) -> DecoderWeights:
    """All weights as `keeper` keeps them; `on_layer(done)` after each layer.

    Each tensor goes to its last place before the next is read, the largest ones first, so that memory stays near the
    weights' own size.
    """
    table = (config.vocab, config.hidden)
    embedding = keeper.table(source.pieces(names.embedding, table), table)
    head = embedding if config.tied_embeddings else keeper.table(source.pieces(names.head, table), table)
    layers = []
    for index in range(config.layers):
        layers.append(_Layer(source, names, config, keeper, index).weights())
        on_layer(index + 1)
    norm = source.read(names.norm, (config.hidden,)).float() + config.norm_offset
    return DecoderWeights(embedding, tuple(layers), keeper.vector(norm), head)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of a file, being put together."""

    source: TensorSource
    names: TensorNames
    config: ModelConfig
    keeper: Keeping
    index: int

    def weights(self) -> LayerWeights:
        names, config = self.names, self.config
        qkv = _parts(names.qkv, (config.q_width, config.kv_width, config.kv_width))
        wide = config.qk_norm is QkNorm.WIDTH
        normed = config.qk_norm is not QkNorm.NONE
        return LayerWeights(
            attention_norm=self._norm(names.attention_norm, config.hidden),
            qkv=self._linear(qkv, config.hidden),
            out=self._linear({names.out: config.hidden}, config.q_width),
            mlp_norm=self._norm(names.mlp_norm, config.hidden),
            mlp=self._mlp(),
            q_norm=self._norm(names.q_norm if normed else None, config.q_width if wide else config.head_dim),
            k_norm=self._norm(names.k_norm if normed else None, config.kv_width if wide else config.head_dim),
            attention_post_norm=self._norm(names.attention_post_norm, config.hidden),
            mlp_post_norm=self._norm(names.mlp_post_norm, config.hidden),
        )

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self.source.read(self.names.layer.format(self.index) + name, shape)

    def _norm(self, name: str | None, size: int) -> Tensor | None:
        # float32 whatever the weights' type is: they are few, and 1 + a small number loses it in bfloat16.
        if name is None:
            return None
        return self.keeper.vector(self._read(f"{name}.weight", (size,)).float() + self.config.norm_offset)

    def _linear(self, parts: dict[str, int], width: int) -> Linear:
        prefix = self.names.layer.format(self.index)
        pieces = (self.source.pieces(f"{prefix}{name}.weight", (rows, width)) for name, rows in parts.items())
        biased = any(self.source.has(f"{prefix}{name}.bias") for name in parts)
        bias = torch.cat([self._read(f"{name}.bias", (rows,)) for name, rows in parts.items()]) if biased else None
        return self.keeper.linear(itertools.chain.from_iterable(pieces), (sum(parts.values()), width), bias)

    def _mlp(self) -> Mlp:
        experts = self.config.experts
        if experts is not None and self.config.layer_kinds[self.index].sparse:
            return self._mixture(experts)
        hidden, inner = self.config.hidden, self.config.intermediate
        gate_up = self._linear(_parts(self.names.gate_up, (inner, inner)), hidden)
        return GatedMlp(self.config.activation, gate_up, self._linear({self.names.down: hidden}, inner))

    def _mixture(self, experts: Experts) -> MixtureOfExperts:
        names, hidden, inner = self.names.experts, self.config.hidden, experts.intermediate
        gate_ups = self._per_expert(_parts(names.gate_up, (inner, inner)), hidden, experts.count)
        downs = self._per_expert({names.down: hidden}, inner, experts.count)
        mlps = (GatedMlp(self.config.activation, *pair) for pair in zip(gate_ups, downs, strict=True))
        router = self.keeper.whole(self._read(f"{names.router}.weight", (experts.count, hidden)))
        return MixtureOfExperts(router, tuple(mlps), experts.active, experts.normalised)

    def _per_expert(self, parts: dict[str, int], width: int, count: int) -> list[Linear]:
        """The stacked parts of each expert `[rows, width]`."""
        if any("{}" in name for name in parts):
            each = [{name.format(i): rows for name, rows in parts.items()} for i in range(count)]
            return [self._linear(one, width) for one in each]
        whole = [self._read(name, (count, rows, width)) for name, rows in parts.items()]
        shape = (sum(parts.values()), width)
        return [self.keeper.linear([part[i] for part in whole], shape, None) for i in range(count)]


def _parts(names: tuple[str, ...], rows: tuple[int, ...]) -> dict[str, int]:
    """The rows of each named part; one name stands for all of them."""
    return dict(zip(names, rows, strict=True)) if len(names) > 1 else {names[0]: sum(rows)}


def row_ranges(shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """First and last (not included) row of each piece of a matrix."""
    rows, columns = shape
    step = max(32, PIECE // columns // 32 * 32)
    return ((first, min(first + step, rows)) for first in range(0, rows, step))
