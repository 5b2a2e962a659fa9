"""Attention of a few tokens over their windows, where the pages lie.

A token's visible slots are a few contiguous runs; they are cut into pieces that threads take as they come free, each
with a softmax of its own, and the pieces of a head are put together afterwards (FlashDecoding's split of the keys).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from kernels.cpu.compiled import jit
from kernels.cpu.vectors import (
    F32,
    Builder,
    Value,
    as_bits,
    as_float,
    at,
    filled,
    fused,
    load,
    number,
    paired,
    repeat,
    shuffled,
    splat,
    store,
    vector,
    word,
)  # fmt: skip

PIECE = 64
"""Slots of a piece at most: its keys, of 64 dimensions in float32, are half of what the first cache holds."""
DIMS = 32
"""Dimensions that are mixed at a time; those of a head must be a multiple."""
_SLOTS = 8
"""Slots whose scores are one vector."""


@word
def _dots(_typing: Any, q: Any, k: Any, dim: Any, out: Any) -> Any:
    """out[i] = q . k[i] for 8 keys of `dim` float32 one after another."""

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        q, k, dim, out = args

        def some(index: Value, sums: Sequence[Value]) -> Sequence[Value]:
            offset = builder.mul(index, number(32))
            query = load(builder, builder.add(q, offset), vector(F32, 8))
            keys = [
                load(builder, builder.add(builder.add(k, offset), builder.mul(dim, number(4 * slot))), vector(F32, 8))
                for slot in range(_SLOTS)
            ]
            return [fused(builder, query, key, total) for key, total in zip(keys, sums, strict=True)]

        sums = repeat(builder, builder.sdiv(dim, number(8)), [filled(F32, 8, 0.0)] * _SLOTS, some)
        # Sums across lanes, all 8 at once: neighbours, neighbours again, then the halves.
        for _ in range(2):
            sums = [paired(builder, sums[i], sums[i + 1]) for i in range(0, len(sums), 2)]
        first, second = sums
        low, high = (shuffled(builder, first, second, [*range(h, h + 4), *range(h + 8, h + 12)]) for h in (0, 4))
        store(builder, builder.fadd(low, high), out)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@word
def _mix(_typing: Any, weights: Any, v: Any, pairs: Any, dim: Any, out: Any) -> Any:
    """out[:32] = sum of weights[i] * v[i, :32] over 2 * `pairs` values, `dim` float32 apart."""

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        weights, v, pairs, dim, out = args
        lanes = DIMS // 8

        def two(index: Value, sums: Sequence[Value]) -> Sequence[Value]:
            after = []
            for second in (0, 1):
                slot = builder.add(builder.mul(index, number(2)), number(second))
                weight = splat(builder, load(builder, builder.add(weights, builder.mul(slot, number(4))), F32), 8)
                value = builder.add(v, builder.mul(builder.mul(slot, dim), number(4)))
                for lane in range(lanes):
                    x = load(builder, at(builder, value, 32 * lane), vector(F32, 8))
                    after.append(fused(builder, weight, x, sums[second * lanes + lane]))
            return after

        # Twice as many sums as lanes: a product may begin before the one before it has ended.
        sums = repeat(builder, pairs, [filled(F32, 8, 0.0)] * (2 * lanes), two)
        for lane in range(lanes):
            store(builder, builder.fadd(sums[lane], sums[lanes + lane]), at(builder, out, 32 * lane))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@jit
def exponential(x: Any) -> Any:
    """e^x for float32 x <= 88, to 2e-7 of itself (Cephes' polynomial)."""
    x = max(x, np.float32(-87.0))
    whole = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(0.5)
    return (p * r * r + r + np.float32(1)) * as_float((np.int32(whole) + np.int32(127)) << np.int32(23))


@jit
def _ordered(bits: Any) -> Any:
    """Of a float32's bits, an int32 that compares as the float does; and back."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@jit
def _softmax(scores: Any, scale: float, found: Any) -> None:
    """`scores` become exp(score * scale - largest); `found` gets the largest and their sum."""
    most = np.int32(-(2**31))
    for i in range(len(scores)):
        scores[i] *= scale
        most = max(most, _ordered(as_bits(scores[i])))
    largest, total = as_float(_ordered(most)), np.float32(0)
    for i in range(len(scores)):
        scores[i] = exponential(scores[i] - largest)
        total += scores[i]
    found[0], found[1] = largest, total


@jit
def attend_piece(q: Any, k: Any, v: Any, first: int, end: int, scale: float, scores: Any, part: Any) -> None:
    """The query heads `q` `[group, dim]` of one KV head over slots [first, end) of `k`, `v` `[slots, dim]`.

    `part` `[group, dim + 2]`: the values, mixed by exp(score - largest), then the largest score and the sum of those
    weights. `scores` is room for `[group, PIECE]`.
    """
    group, dim = q.shape
    count = end - first
    for head in range(group):
        score, start = scores[head], 0
        while start + _SLOTS <= count:
            _dots(q[head].ctypes.data, k[first + start].ctypes.data, dim, score[start:].ctypes.data)
            start += _SLOTS
        for i in range(start, count):
            total = np.float32(0)
            for d in range(dim):
                total += q[head, d] * k[first + i, d]
            score[i] = total
        _softmax(score[:count], scale, part[head, dim:])
        for d in range(0, dim, DIMS):
            if count > 1:
                _mix(score.ctypes.data, v[first, d:].ctypes.data, count // 2, dim, part[head, d:].ctypes.data)
            else:
                part[head, d : d + DIMS] = 0
            if count % 2:
                for i in range(d, d + DIMS):
                    part[head, i] += score[count - 1] * v[end - 1, i]


@jit
def join_pieces(parts: Any, first: int, end: int, head: int, out: Any) -> None:
    """Put pieces [first, end) of `parts` `[pieces, group, dim + 2]` together: `out` `[dim]` of one query head."""
    dim = len(out)
    largest = parts[first, head, dim]
    for piece in range(first, end):
        largest = max(largest, parts[piece, head, dim])
    total = np.float32(0)
    for d in range(dim):
        out[d] = 0
    for piece in range(first, end):
        weight = exponential(parts[piece, head, dim] - largest)
        total += weight * parts[piece, head, dim + 1]
        for d in range(dim):
            out[d] += weight * parts[piece, head, d]
    for d in range(dim):
        out[d] /= total
