"""All layers of a decoder for a few tokens in one compiled call. In torch, one token costs 30 x 20 calls of it.

Each thread norms and rounds by itself what a product takes in, which costs less than to wait for another to do it; the
rows of a product and the pieces of the windows are taken by whoever is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernels.cpu.compiled import jit
from kernels.cpu.decode_attention import PIECE, attend_piece, exponential, join_pieces
from kernels.cpu.packed_linear import round_row, tile_product
from kernels.cpu.packed_weights import GROUP, TILE, PackedWeight
from kernels.cpu.page_rows import units, write_row
from kernels.cpu.team import PHASES, Team, claim, wait
from kernels.cpu.unpacked_tile import ROOM

MOST_TOKENS = 8
"""The most tokens of a call: beyond, sums cost more than the reading of weights, and torch's attention is as good."""
_CLAIMED = 5
"""Phases of a layer: qkv, attention, out, gate and up, down."""
MOST_LAYERS = PHASES // _CLAIMED


@dataclass(frozen=True, slots=True)
class LayerParts:
    """One layer of a Llama-shaped decoder: norms before attention and MLP, a SiLU-gated MLP.

    qkv: `[(q_heads + 2 * kv_heads) * head_dim, hidden]`; bias `[rows]` or None. gate_up: gate's rows, then up's.
    q_norm, k_norm: `[head_dim]`, both or neither.
    """

    qkv: PackedWeight
    bias: Tensor | None
    out: PackedWeight
    gate_up: PackedWeight
    down: PackedWeight
    attention_norm: Tensor
    mlp_norm: Tensor
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class SeenSlots:
    """What one token sees: runs of slots [first, end) of the sinks and of the ring, its own slot among them."""

    slot: int
    sinks: Sequence[tuple[int, int]]
    ring: Sequence[tuple[int, int]]


class LayerWeights(NamedTuple):
    """`products` int64 `[layers, 4, 3]`: address, bits, bytes of a tile. Biases and head norms have no layers where
    there are none."""

    products: Any
    norms: Any
    bias: Any
    head_norms: Any
    eps: Any
    scale: Any


class _Step(NamedTuple):
    """`turns` float32 `[tokens, 4, head_dim]`: cosines and signed sines for the ring, then for the sinks. `pieces`
    int64 `[pieces, 4]`: token, first slot, end, 1 for sinks; those of token i are `[piece_of[i], piece_of[i + 1])`."""

    hidden: Any
    turns: Any
    k: Any
    v: Any
    slots: Any
    pieces: Any
    piece_of: Any


class _Room(NamedTuple):
    """What is computed on the way; with `threads` in front, each thread's own."""

    qkv: Any
    queries: Any
    keys: Any
    parts: Any
    inner: Any
    wide: Any
    acts: Any
    scales: Any
    sums: Any
    scores: Any
    tiles: Any
    unpacked: Any


@jit
def norm_row(x: Any, weight: Any, eps: float, out: Any) -> None:
    """RMSNorm of the first `len(weight)` numbers of a row."""
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i] * x[i]
    by = np.float32(1) / np.sqrt(total / np.float32(len(x)) + eps)
    for i in range(len(weight)):
        out[i] = x[i] * by * weight[i]


@jit
def _take_in(x: Any, columns: int, room: Any, me: int) -> None:
    """Round the rows of `x` for a product, for this thread."""
    groups = columns // GROUP
    for token in range(len(x)):
        a, g = token * columns, token * groups
        round_row(
            x[token, :columns], room.acts[me, a : a + columns], room.scales[me, g : g + groups],
            room.sums[me, g : g + groups],
        )  # fmt: skip


@jit
def _tile(product: Any, index: int, columns: int, tokens: int, room: Any, me: int, out: int, stride: int) -> None:
    tile_product(
        product[0] + index * product[2], product[1], columns // GROUP, room.acts[me].ctypes.data,
        room.scales[me].ctypes.data, room.sums[me].ctypes.data, tokens, out, stride,
        room.unpacked[me].ctypes.data,
    )  # fmt: skip


@jit
def _at_once(tiles: int, threads: int) -> int:
    return max(1, min(8, tiles // (threads * 4)))


@jit
def _add_product(
    counters: int, phase: int, threads: int, me: int, product: Any, columns: int, hidden: Any, room: Any
) -> None:
    """hidden += what was taken in, times the weight."""
    tokens, tiles = hidden.shape[0], hidden.shape[1] // TILE
    size, got = _at_once(tiles, threads), room.tiles[me]
    first = claim(counters, phase, size)
    while first < tiles:
        for tile in range(first, min(first + size, tiles)):
            _tile(product, tile, columns, tokens, room, me, got.ctypes.data, TILE * 4)
            for token in range(tokens):
                for i in range(TILE):
                    hidden[token, tile * TILE + i] += got[0, token, i]
        first = claim(counters, phase, size)
    wait(counters, threads)


@jit
def _project(counters: int, phase: int, threads: int, me: int, product: Any, columns: int, room: Any) -> None:
    """room.qkv = what was taken in, times the weight."""
    tokens, rows = room.qkv.shape
    tiles = rows // TILE
    size = _at_once(tiles, threads)
    first = claim(counters, phase, size)
    while first < tiles:
        for tile in range(first, min(first + size, tiles)):
            _tile(product, tile, columns, tokens, room, me, room.qkv.ctypes.data + tile * TILE * 4, rows * 4)
        first = claim(counters, phase, size)
    wait(counters, threads)


@jit
def gated(gate: Any, up: Any) -> Any:
    """silu(gate) * up."""
    # Beyond -87 the exponential would be infinite, and the gate is shut all the same.
    return gate / (np.float32(1) + exponential(-max(gate, np.float32(-87)))) * up


@jit
def _gate(counters: int, phase: int, threads: int, me: int, product: Any, columns: int, room: Any) -> None:
    """room.inner = silu(gate) * up."""
    tokens, tiles = room.inner.shape[0], room.inner.shape[1] // TILE
    size, got = _at_once(tiles, threads), room.tiles[me]
    first = claim(counters, phase, size)
    while first < tiles:
        for tile in range(first, min(first + size, tiles)):
            _tile(product, tile, columns, tokens, room, me, got[0].ctypes.data, TILE * 4)
            _tile(product, tile + tiles, columns, tokens, room, me, got[1].ctypes.data, TILE * 4)
            for token in range(tokens):
                for i in range(TILE):
                    room.inner[token, tile * TILE + i] = gated(got[0, token, i], got[1, token, i])
        first = claim(counters, phase, size)
    wait(counters, threads)


@jit
def turn(x: Any, turns: Any, out: Any) -> None:
    """Rotate one head `x` `[head_dim]`, by cosines `turns[0]` and signed sines `turns[1]`."""
    half = len(x) // 2
    for i in range(half):
        out[i] = x[i] * turns[0, i] + x[i + half] * turns[1, i]
    for i in range(half, 2 * half):
        out[i] = x[i] * turns[0, i] + x[i - half] * turns[1, i]


@jit
def _place(layer: int, weights: Any, step: Any, room: Any, me: int, threads: int) -> None:
    """Bias, head norms and rotation of queries and keys; keys and values to their slots."""
    tokens, _, q_heads, dim = room.queries.shape
    kv_heads = step.k.shape[1]
    if len(weights.bias):
        for token in range(me, tokens, threads):
            for i in range(room.qkv.shape[1]):
                room.qkv[token, i] += weights.bias[layer, i]
    for token in range(me, tokens, threads):
        heads = room.qkv[token].reshape(-1, dim)
        for head in range(q_heads + kv_heads):
            if len(weights.head_norms):
                which = 0 if head < q_heads else 1
                norm_row(heads[head], weights.head_norms[layer, which], weights.eps, heads[head])
            if head < q_heads:
                turn(heads[head], step.turns[token, 0:2], room.queries[token, 0, head])
                turn(heads[head], step.turns[token, 2:4], room.queries[token, 1, head])
            else:
                turn(heads[head], step.turns[token, 0:2], room.keys[me])
                write_row(room.keys[me], step.k[layer, head - q_heads, step.slots[token]])
        for head in range(kv_heads):
            write_row(heads[q_heads + kv_heads + head], step.v[layer, head, step.slots[token]])


@jit
def _attend(counters: int, phase: int, threads: int, me: int, layer: int, weights: Any, step: Any, room: Any) -> None:
    kv_heads, pieces, group, _ = room.parts.shape
    task = claim(counters, phase, 1)
    while task < kv_heads * pieces:
        head, piece = task // pieces, task % pieces
        token, first, end, sinks = step.pieces[piece]
        attend_piece(
            room.queries[token, sinks, head * group : (head + 1) * group], step.k[layer, head], step.v[layer, head],
            first, end, weights.scale, room.scores[me], room.parts[head, piece],
        )  # fmt: skip
        task = claim(counters, phase, 1)
    wait(counters, threads)


@jit
def _join(step: Any, room: Any, me: int) -> None:
    """The attended heads of each token, side by side, in this thread's `wide`."""
    group, dim = room.parts.shape[2], room.queries.shape[3]
    for token in range(len(step.hidden)):
        first, end = step.piece_of[token], step.piece_of[token + 1]
        for head in range(room.queries.shape[2]):
            out = room.wide[me, token, head * dim : (head + 1) * dim]
            join_pieces(room.parts[head // group], first, end, head % group, out)


@jit
def _layers(counters: int, me: int, threads: int, weights: Any, step: Any, room: Any) -> None:
    tokens, width = step.hidden.shape
    q_width, inner = room.queries.shape[2] * room.queries.shape[3], room.inner.shape[1]
    for layer in range(len(weights.norms)):
        phase, products, wide = layer * _CLAIMED, weights.products[layer], room.wide[me]
        for token in range(tokens):
            norm_row(step.hidden[token], weights.norms[layer, 0], weights.eps, wide[token])
        _take_in(wide, width, room, me)
        _project(counters, phase, threads, me, products[0], width, room)
        _place(layer, weights, step, room, me, threads)
        wait(counters, threads)
        _attend(counters, phase + 1, threads, me, layer, weights, step, room)
        _join(step, room, me)
        _take_in(wide, q_width, room, me)
        _add_product(counters, phase + 2, threads, me, products[1], q_width, step.hidden, room)
        for token in range(tokens):
            norm_row(step.hidden[token], weights.norms[layer, 1], weights.eps, wide[token])
        _take_in(wide, width, room, me)
        _gate(counters, phase + 3, threads, me, products[2], width, room)
        _take_in(room.inner, inner, room, me)
        _add_product(counters, phase + 4, threads, me, products[3], inner, step.hidden, room)


class DecodeLayers:
    """The layers of one decoder over pages `k`, `v` `[layers, kv_heads, slots, head_dim]`, of one of `PAGE_TYPES`."""

    def __init__(
        self, layers: Sequence[LayerParts], k: Tensor, v: Tensor, *, eps: float, scale: float, team: Team
    ) -> None:
        if len(layers) > MOST_LAYERS:
            raise ValueError(f"{len(layers)} layers; at most {MOST_LAYERS} run in one call")
        self._layers, self._team = layers, team  # the weights stay where they are as long as this lives
        self._k, self._v = units(k), units(v)
        first = layers[0]
        self._hidden, self._inner = first.qkv.columns, first.down.columns
        self._rows, self._dim, self._kv_heads = first.qkv.rows, k.shape[3], k.shape[1]
        self._q_heads = first.out.columns // self._dim
        self._weights = layer_weights(layers, eps, scale)
        self._rooms: dict[tuple[int, int], _Room] = {}

    def __call__(self, hidden: Tensor, turns: Tensor, seen: Sequence[SeenSlots]) -> None:
        """Take `hidden` float32 `[tokens, hidden]` through the layers, in place, and store keys and values.

        `turns` float32 `[tokens, 4, head_dim]`: cosines and signed sines of each position for ring and for sinks. A
        token may see those before it; no slot that one of them sees may be written here. Raises ValueError for other
        shapes.
        """
        tokens = len(seen)
        shapes = (tokens, self._hidden), (tokens, 4, self._dim)
        if not 0 < tokens <= MOST_TOKENS or (hidden.shape, turns.shape) != shapes:
            raise ValueError(
                f"{tokens} tokens, hidden {tuple(hidden.shape)}, turns {tuple(turns.shape)}; 1 to {MOST_TOKENS}, "
                f"hidden {shapes[0]} and turns {shapes[1]} are taken"
            )
        cut = [[(index, *piece) for piece in _pieces(slots)] for index, slots in enumerate(seen)]
        piece_of = np.cumsum([0, *map(len, cut)])
        step = _Step(
            hidden.numpy(), turns.numpy(), self._k, self._v, np.array([slots.slot for slots in seen]),
            np.array([piece for pieces in cut for piece in pieces]), piece_of,
        )  # fmt: skip
        room = self._room(tokens, int(piece_of[-1]))
        self._team.run(_layers, len(self._layers) * _CLAIMED, self._weights, step, room)

    def _room(self, tokens: int, pieces: int) -> _Room:
        if (tokens, pieces) not in self._rooms:
            self._rooms.clear()  # windows grow: what was enough before is not needed again
            self._rooms[tokens, pieces] = self._new_room(tokens, pieces)
        return self._rooms[tokens, pieces]

    def _new_room(self, tokens: int, pieces: int) -> _Room:
        threads, dim = self._team.threads, self._dim
        widest, group = max(self._hidden, self._inner, self._q_heads * dim), self._q_heads // self._kv_heads

        def floats(*shape: int) -> Any:
            return np.zeros(shape, np.float32)

        return _Room(
            floats(tokens, self._rows), floats(tokens, 2, self._q_heads, dim), floats(threads, dim),
            floats(self._kv_heads, pieces, group, dim + 2), floats(tokens, self._inner),
            floats(threads, tokens, widest), np.zeros((threads, tokens * widest), np.int16),
            floats(threads, tokens * widest // GROUP), floats(threads, tokens * widest // GROUP),
            floats(threads, group, PIECE), floats(threads, 2, tokens, TILE), np.zeros((threads, ROOM), np.uint8),
        )  # fmt: skip


def layer_weights(layers: Sequence[LayerParts], eps: float, scale: float) -> LayerWeights:
    """The layers as the kernels read them."""
    products = [
        [
            (weight.data.data_ptr(), weight.bits, weight.data.stride(0))
            for weight in (part.qkv, part.out, part.gate_up, part.down)
        ]
        for part in layers
    ]
    norms = torch.stack([torch.stack((part.attention_norm, part.mlp_norm)) for part in layers])
    bias = [part.bias.float() for part in layers if part.bias is not None]
    heads = [torch.stack((p.q_norm, p.k_norm)) for p in layers if p.q_norm is not None and p.k_norm is not None]
    return LayerWeights(
        np.array(products, np.int64), norms.numpy(), _stacked(bias, 2), _stacked(heads, 3), np.float32(eps),
        np.float32(scale),
    )  # fmt: skip


def _stacked(tensors: list[Tensor], dims: int) -> Any:
    return torch.stack(tensors).numpy() if tensors else np.zeros((0,) * dims, np.float32)


def _pieces(seen: SeenSlots) -> list[tuple[int, int, int]]:
    """First slot, end, 1 for sinks: runs in pieces of `PIECE` at most."""
    return [
        (begin, min(begin + PIECE, end), sinks)
        for sinks, runs in ((1, seen.sinks), (0, seen.ring))
        for first, end in runs
        for begin in range(first, end, PIECE)
    ]
