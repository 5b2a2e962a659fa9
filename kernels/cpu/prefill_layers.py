"""All layers of a decoder for a chunk of one chat's tokens in one compiled call.

As `decode_layers`, for more tokens: what goes into a product is normed and rounded once, by all threads, and the tokens
attend before their keys and values are stored, so they may be written over what the first of them still see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from kernels.cpu.compiled import jit
from kernels.cpu.decode_layers import MOST_LAYERS, LayerParts, gated, layer_weights, norm_row, turn
from kernels.cpu.packed_linear import round_row, tile_product
from kernels.cpu.packed_weights import GROUP, TILE
from kernels.cpu.page_rows import round_row_to_half, units, write_row
from kernels.cpu.prefill_attention import DIMS, ChunkKeys, attend_tokens, rooms_for, tokens_at_once
from kernels.cpu.team import Team, claim, wait
from kernels.cpu.unpacked_tile import ROOM

_CLAIMED = 5
"""Phases of a layer: qkv, attention, out, gate and up, down."""


class _Chunk(NamedTuple):
    """`turns` float32 `[tokens, 4, head_dim]`: cosines and signed sines for the ring, then for the sinks."""

    hidden: Any
    turns: Any
    k: Any
    v: Any
    slots: Any
    where: Any
    blocks: Any
    seen: Any


class _Room(NamedTuple):
    """What is computed on the way: `wide` `[tokens, widest]` goes into a product as `acts`, `scales` and `sums`."""

    qkv: Any
    q_window: Any
    q_sink: Any
    new_k: Any
    attended: Any
    inner: Any
    acts: Any
    scales: Any
    sums: Any
    rows: Any
    tiles: Any
    unpacked: Any
    attention: Any


@jit
def _round(x: Any, token: int, columns: int, room: Any) -> None:
    a, g, groups = token * columns, token * columns // GROUP, columns // GROUP
    round_row(
        x[:columns], room.acts[a : a + columns], room.scales[g : g + groups], room.sums[g : g + groups]
    )  # fmt: skip


@jit
def _norm_and_round(hidden: Any, weight: Any, eps: float, room: Any, me: int, threads: int) -> None:
    for token in range(me, len(hidden), threads):
        norm_row(hidden[token], weight, eps, room.rows[me])
        _round(room.rows[me], token, hidden.shape[1], room)


@jit
def _tile(product: Any, index: int, columns: int, tokens: int, room: Any, me: int, out: int, stride: int) -> None:
    tile_product(
        product[0] + index * product[2], product[1], columns // GROUP, room.acts.ctypes.data,
        room.scales.ctypes.data, room.sums.ctypes.data, tokens, out, stride, room.unpacked[me].ctypes.data,
    )  # fmt: skip


@jit
def _project(counters: int, phase: int, me: int, product: Any, columns: int, room: Any) -> None:
    tokens, rows = room.qkv.shape
    tile = claim(counters, phase, 1)
    while tile < rows // TILE:
        _tile(product, tile, columns, tokens, room, me, room.qkv.ctypes.data + tile * TILE * 4, rows * 4)
        tile = claim(counters, phase, 1)


@jit
def _add_product(counters: int, phase: int, me: int, product: Any, columns: int, hidden: Any, room: Any) -> None:
    got = room.tiles[me, 0]
    tile = claim(counters, phase, 1)
    while tile < hidden.shape[1] // TILE:
        _tile(product, tile, columns, len(hidden), room, me, got.ctypes.data, TILE * 4)
        for token in range(len(hidden)):
            for i in range(TILE):
                hidden[token, tile * TILE + i] += got[token, i]
        tile = claim(counters, phase, 1)


@jit
def _gate(counters: int, phase: int, me: int, product: Any, columns: int, room: Any) -> None:
    """room.inner = silu(gate) * up."""
    tokens, tiles, got = len(room.inner), room.inner.shape[1] // TILE, room.tiles[me]
    tile = claim(counters, phase, 1)
    while tile < tiles:
        _tile(product, tile, columns, tokens, room, me, got[0].ctypes.data, TILE * 4)
        _tile(product, tile + tiles, columns, tokens, room, me, got[1].ctypes.data, TILE * 4)
        for token in range(tokens):
            for i in range(TILE):
                room.inner[token, tile * TILE + i] = gated(got[0, token, i], got[1, token, i])
        tile = claim(counters, phase, 1)


@jit
def _turn_heads(layer: int, weights: Any, chunk: Any, room: Any, me: int, threads: int) -> None:
    """Bias, head norms and rotation of queries and keys. Keys and values become what their pages will hold, so that a
    token sees the same wherever its prompt is cut."""
    tokens, q_heads, dim = room.q_window.shape
    kv_heads, in_halves = room.new_k.shape[1], chunk.k.shape[3] == dim
    for token in range(me, tokens, threads):
        if len(weights.bias):
            for i in range(room.qkv.shape[1]):
                room.qkv[token, i] += weights.bias[layer, i]
        heads = room.qkv[token].reshape(-1, dim)
        for head in range(q_heads + kv_heads):
            if len(weights.head_norms):
                which = 0 if head < q_heads else 1
                norm_row(heads[head], weights.head_norms[layer, which], weights.eps, heads[head])
            if head < q_heads:
                turn(heads[head], chunk.turns[token, 0:2], room.q_window[token, head])
                turn(heads[head], chunk.turns[token, 2:4], room.q_sink[token, head])
            else:
                turn(heads[head], chunk.turns[token, 0:2], room.new_k[token, head - q_heads])
        if in_halves:
            for head in range(kv_heads):
                round_row_to_half(room.new_k[token, head])
                round_row_to_half(heads[q_heads + kv_heads + head])


@jit
def _attend(counters: int, phase: int, at_once: int, layer: int, weights: Any, chunk: Any, room: Any, me: int) -> None:
    tokens, q_heads, dim = room.q_window.shape
    kv_heads = room.new_k.shape[1]
    lots = -(-tokens // at_once)
    new_v = room.qkv.reshape(tokens, -1, dim)[:, q_heads + kv_heads :]
    a = room.attention
    mine = (a[0][me], a[1][me], a[2][me], a[3][me], a[4][me], a[5][me], a[6][me], a[7][me])
    task = claim(counters, phase, 1)
    while task < lots * kv_heads:
        lot, head = lots - 1 - task // kv_heads, task % kv_heads
        attend_tokens(
            lot * at_once, min(tokens, (lot + 1) * at_once), head, room.q_window, room.q_sink, room.new_k, new_v,
            chunk.k[layer], chunk.v[layer], chunk.where, chunk.blocks, chunk.seen, weights.scale, mine, room.attended,
        )  # fmt: skip
        task = claim(counters, phase, 1)


@jit
def _keep(layer: int, chunk: Any, room: Any, me: int, threads: int) -> None:
    """Keys and values to their slots; what was attended is rounded for the next product."""
    tokens, q_heads, dim = room.q_window.shape
    kv_heads = room.new_k.shape[1]
    for token in range(me, tokens, threads):
        slot, heads = chunk.slots[token], room.qkv[token].reshape(-1, dim)
        for head in range(kv_heads):
            write_row(room.new_k[token, head], chunk.k[layer, head, slot])
            write_row(heads[q_heads + kv_heads + head], chunk.v[layer, head, slot])
        _round(room.attended[token].reshape(-1), token, q_heads * dim, room)


@jit
def _layers(counters: int, me: int, threads: int, at_once: int, weights: Any, chunk: Any, room: Any) -> None:
    width, inner = chunk.hidden.shape[1], room.inner.shape[1]
    q_width = room.q_window.shape[1] * room.q_window.shape[2]
    for layer in range(len(weights.norms)):
        phase, products = layer * _CLAIMED, weights.products[layer]
        _norm_and_round(chunk.hidden, weights.norms[layer, 0], weights.eps, room, me, threads)
        wait(counters, threads)
        _project(counters, phase, me, products[0], width, room)
        wait(counters, threads)
        _turn_heads(layer, weights, chunk, room, me, threads)
        wait(counters, threads)
        _attend(counters, phase + 1, at_once, layer, weights, chunk, room, me)
        wait(counters, threads)
        _keep(layer, chunk, room, me, threads)
        wait(counters, threads)
        _add_product(counters, phase + 2, me, products[1], q_width, chunk.hidden, room)
        wait(counters, threads)
        _norm_and_round(chunk.hidden, weights.norms[layer, 1], weights.eps, room, me, threads)
        wait(counters, threads)
        _gate(counters, phase + 3, me, products[2], width, room)
        wait(counters, threads)
        for token in range(me, len(chunk.hidden), threads):
            _round(room.inner[token], token, inner, room)
        wait(counters, threads)
        _add_product(counters, phase + 4, me, products[3], inner, chunk.hidden, room)
        wait(counters, threads)


class PrefillLayers:
    """The layers of one decoder over pages `k`, `v` `[layers, kv_heads, slots, head_dim]`, of one of `PAGE_TYPES`."""

    def __init__(
        self, layers: Sequence[LayerParts], k: Tensor, v: Tensor, *, eps: float, scale: float, team: Team
    ) -> None:
        if len(layers) > MOST_LAYERS or k.shape[3] % DIMS:
            raise ValueError(
                f"{len(layers)} layers, heads of {k.shape[3]}; up to {MOST_LAYERS} layers and heads of a multiple of "
                f"{DIMS} run in one call"
            )
        self._layers, self._team = layers, team  # the weights stay where they are as long as this lives
        self._k, self._v = units(k), units(v)
        self._kv_heads, self._dim = k.shape[1], k.shape[3]
        self._weights = layer_weights(layers, eps, scale)
        self._held: _Room | None = None

    def __call__(self, hidden: Tensor, turns: Tensor, slots: Tensor, keys: ChunkKeys) -> None:
        """Take `hidden` float32 `[tokens, hidden]` through the layers, in place, and store keys and values at `slots`.

        `turns` as for `DecodeLayers`. Raises ValueError for other shapes.
        """
        tokens, first = len(slots), self._layers[0]
        shapes = (tokens, first.qkv.columns), (tokens, 4, self._dim), tokens
        if not tokens or (hidden.shape, turns.shape, len(keys.seen)) != shapes:
            raise ValueError(
                f"hidden {tuple(hidden.shape)}, turns {tuple(turns.shape)}, {len(keys.seen)} tokens that see; "
                f"{shapes} are taken"
            )
        arrays = [x.numpy() for x in (slots, keys.where, keys.blocks, keys.seen)]
        chunk = _Chunk(hidden.numpy(), turns.numpy(), self._k, self._v, *arrays)
        group = first.out.columns // self._dim // self._kv_heads
        phases = len(self._layers) * _CLAIMED
        self._team.run(_layers, phases, tokens_at_once(group), self._weights, chunk, self._room(tokens))

    def _room(self, tokens: int) -> _Room:
        if self._held is None or len(self._held.qkv) != tokens:
            self._held = self._new_room(tokens)
        return self._held

    def _new_room(self, tokens: int) -> _Room:
        first, threads = self._layers[0], self._team.threads
        kv_heads, dim, q_width, inner = self._kv_heads, self._dim, first.out.columns, first.down.columns
        widest = max(first.qkv.columns, inner, q_width)

        def floats(*shape: int) -> Any:
            return np.zeros(shape, np.float32)

        heads = tokens, q_width // dim, dim
        return _Room(
            floats(tokens, first.qkv.rows), floats(*heads), floats(*heads), floats(tokens, kv_heads, dim),
            floats(*heads), floats(tokens, inner), np.zeros(tokens * widest, np.int16),
            floats(tokens * widest // GROUP), floats(tokens * widest // GROUP), floats(threads, widest),
            floats(threads, 2, tokens, TILE), np.zeros((threads, ROOM), np.uint8),
            rooms_for(q_width // dim // kv_heads, dim, threads),
        )  # fmt: skip
