"""Attention of a few tokens over their windows, where the pages lie.

A token's visible slots are a few contiguous runs; they are cut into pieces that threads take as they come free, each
with a softmax of its own, and the pieces of a head are put together afterwards (FlashDecoding's split of the keys).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numba import types

from kernels.cpu.compiled import jit
from kernels.cpu.page_rows import values_at
from kernels.cpu.vectors import (
    F32,
    Builder,
    Value,
    across,
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

PIECE = 128
"""Slots of a piece at most: its keys, of 64 dimensions in float16, are half of what the first cache holds."""
DIMS = 32
"""Dimensions that are mixed at a time; those of a head must be a multiple."""


def _dots(half: bool, heads: int, slots: int) -> Any:
    """dots(q, k, dim, out, stride): out[h, i] = q[h] . k[i] for so many heads and keys of `dim` values, one after
    another; rows of `out` are `stride` bytes apart. A key is read once for all heads."""
    size = 2 if half else 4

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        q, k, dim, out, stride = args

        def row(address: Value, step: Value, index: int, bytes_each: int = 1) -> Value:
            return builder.add(address, builder.mul(step, number(index * bytes_each))) if index else address

        def some(index: Value, sums: Sequence[Value]) -> Sequence[Value]:
            offset = builder.mul(index, number(32))
            queries = [
                load(builder, builder.add(row(q, dim, head, 4), offset), vector(F32, 8)) for head in range(heads)
            ]
            first, after = builder.add(k, builder.mul(index, number(8 * size))), list[Value]()
            for slot in range(slots):
                key = values_at(builder, row(first, dim, slot, size), half)
                after += [fused(builder, query, key, sums[slot * heads + head]) for head, query in enumerate(queries)]
            return after

        sums = repeat(builder, builder.sdiv(dim, number(8)), [filled(F32, 8, 0.0)] * (heads * slots), some)
        for head in range(heads):
            total, place = _across(builder, sums[head::heads]), row(out, stride, head)
            store(builder, total, place)
        return context.get_dummy_value()

    @word
    def dots(_typing: Any, q: Any, k: Any, dim: Any, out: Any, stride: Any) -> Any:
        return types.void(*[types.int64] * 5), generate

    return dots


def _across(builder: Builder, sums: Sequence[Value]) -> Value:
    """The sums across the lanes of 1, 4 or 8 vectors, one after another."""
    if len(sums) == 1:
        return across(builder, sums[0], builder.fadd)
    # Neighbours, neighbours again, then the halves.
    for _ in range(2):
        sums = [paired(builder, sums[i], sums[i + 1]) for i in range(0, len(sums), 2)]
    first, second = sums[0], sums[-1]
    low, high = (shuffled(builder, first, second, [*range(h, h + 4), *range(h + 8, h + 12)]) for h in (0, 4))
    both = builder.fadd(low, high)
    return both if len(sums) == 2 else shuffled(builder, both, both, range(4))


def _mix(half: bool, heads: int, slots: int) -> Any:
    """mix(weights, stride, v, times, dim, out, out_stride): out[h, :32] += sum of weights[h, i] * v[i, :32] over
    `times` * `slots` values, `dim` of them apart; rows of `weights` and `out` are their strides apart, in bytes. A
    value is read once for all heads."""
    size, lanes = 2 if half else 4, DIMS // 8

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        weights, stride, v, times, dim, out, out_stride = args

        def some(index: Value, sums: Sequence[Value]) -> Sequence[Value]:
            after = list(sums)
            for which in range(slots):
                slot = builder.add(builder.mul(index, number(slots)), number(which))
                first = builder.add(weights, builder.mul(slot, number(4)))
                shares = [
                    splat(builder, load(builder, builder.add(first, builder.mul(stride, number(head))), F32), 8)
                    for head in range(heads)
                ]
                value = builder.add(v, builder.mul(builder.mul(slot, dim), number(size)))
                for lane in range(lanes):
                    x = values_at(builder, at(builder, value, 8 * size * lane), half)
                    for head, share in enumerate(shares):
                        total = (which * heads + head) * lanes + lane
                        after[total] = fused(builder, share, x, after[total])
            return after

        places = [
            at(builder, builder.add(out, builder.mul(out_stride, number(head))), 32 * lane)
            for head in range(heads)
            for lane in range(lanes)
        ]
        begin = [load(builder, place, vector(F32, 8)) for place in places]
        begin += [filled(F32, 8, 0.0)] * (len(places) * (slots - 1))
        sums = repeat(builder, times, begin, some)
        for index, place in enumerate(places):
            store(builder, reduce(builder.fadd, sums[index :: len(places)]), place)
        return context.get_dummy_value()

    @word
    def mix(_typing: Any, weights: Any, stride: Any, v: Any, times: Any, dim: Any, out: Any, out_stride: Any) -> Any:
        return types.void(*[types.int64] * 7), generate

    return mix


# As many sums at once as there are registers for; at least 8, as a product may begin before those before it have ended.
_dot_half, _dots_half_1, _dots_half_2, _dots_half_3 = (_dots(True, *n) for n in ((1, 1), (1, 8), (2, 4), (3, 4)))
_dot_full, _dots_full_1, _dots_full_2, _dots_full_3 = (_dots(False, *n) for n in ((1, 1), (1, 8), (2, 4), (3, 4)))
_mix_half, _mix_half_1, _mix_half_2, _mix_half_3 = (_mix(True, *n) for n in ((1, 1), (1, 2), (2, 1), (3, 1)))
_mix_full, _mix_full_1, _mix_full_2, _mix_full_3 = (_mix(False, *n) for n in ((1, 1), (1, 2), (2, 1), (3, 1)))


@jit
def _together(heads: int) -> int:
    """Of so many heads that are left, how many are computed together."""
    return 3 if heads == 3 or heads > 4 else min(heads, 2)


@jit
def _score(q: Any, k: Any, first: int, count: int, scores: Any) -> None:
    """scores[:, i] = q . k[first + i] for i < count."""
    group, dim = q.shape
    half, stride, head = k.shape[1] == dim, scores.shape[1] * 4, 0
    while head < group:
        some = _together(group - head)
        at_once = 8 if some == 1 else 4
        many = count // at_once * at_once
        for i in range(0, many, at_once):
            query, key, out = q[head].ctypes.data, k[first + i].ctypes.data, scores[head, i:].ctypes.data
            if half and some == 3:
                _dots_half_3(query, key, dim, out, stride)
            elif half and some == 2:
                _dots_half_2(query, key, dim, out, stride)
            elif half:
                _dots_half_1(query, key, dim, out, stride)
            elif some == 3:
                _dots_full_3(query, key, dim, out, stride)
            elif some == 2:
                _dots_full_2(query, key, dim, out, stride)
            else:
                _dots_full_1(query, key, dim, out, stride)
        for i in range(many, count):
            for one in range(head, head + some):
                query, key, out = q[one].ctypes.data, k[first + i].ctypes.data, scores[one, i:].ctypes.data
                if half:
                    _dot_half(query, key, dim, out, stride)
                else:
                    _dot_full(query, key, dim, out, stride)
        head += some


@jit
def _mix_values(weights: Any, v: Any, first: int, count: int, out: Any) -> None:
    """out[:, :dim] = sum of weights[:, i] * v[first + i] over i < count."""
    group, dim = len(out), out.shape[1] - 2
    half, stride, out_stride = v.shape[1] == dim, weights.shape[1] * 4, out.shape[1] * 4
    unit = 1 if half else 2
    out[:, :dim] = 0
    for d in range(0, dim, DIMS):
        value, last, head = v[first, d * unit :].ctypes.data, v[first + count - 1, d * unit :].ctypes.data, 0
        while head < group:
            some = _together(group - head)
            share, end = weights[head].ctypes.data, weights[head, count - 1 :].ctypes.data
            to = out[head, d:].ctypes.data
            if half and some == 3:
                _mix_half_3(share, stride, value, count, dim, to, out_stride)
            elif half and some == 2:
                _mix_half_2(share, stride, value, count, dim, to, out_stride)
            elif some == 3:
                _mix_full_3(share, stride, value, count, dim, to, out_stride)
            elif some == 2:
                _mix_full_2(share, stride, value, count, dim, to, out_stride)
            elif half:
                if count > 1:
                    _mix_half_1(share, stride, value, count // 2, dim, to, out_stride)
                if count % 2:
                    _mix_half(end, stride, last, 1, dim, to, out_stride)
            else:
                if count > 1:
                    _mix_full_1(share, stride, value, count // 2, dim, to, out_stride)
                if count % 2:
                    _mix_full(end, stride, last, 1, dim, to, out_stride)
            head += some


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
    """The query heads `q` `[group, dim]` of one KV head over slots [first, end) of its rows `k`, `v` `[slots, units]`.

    `part` `[group, dim + 2]`: the values, mixed by exp(score - largest), then the largest score and the sum of those
    weights. `scores` is room for `[group, PIECE]`.
    """
    group, dim = q.shape
    count = end - first
    _score(q, k, first, count, scores)
    for head in range(group):
        _softmax(scores[head, :count], scale, part[head, dim:])
    _mix_values(scores, v, first, count, part)


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
