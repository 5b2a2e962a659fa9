"""The product of a few tokens, or many, with a weight in 4 or 8 bits.

What goes in is rounded to 16 bits, in groups of 32 columns as the weight is: an error of 1.5e-5 of the group's largest
value, a thousandth of what 8 bits would cost. The sum of a group is an integer, exact; the sum over groups is float32.
A token's result does not depend on how many others there are: reading a prompt at once or in chunks is the same to
the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from numba import types
from torch import Tensor

from kernels.cpu.compiled import jit
from kernels.cpu.packed_weights import GROUP, TILE, PackedWeight, group_bytes, unpack
from kernels.cpu.team import Team, claim, wait
from kernels.cpu.unpacked_tile import ROOM, TOGETHER, pairs_of_columns, unpacked_4, unpacked_8
from kernels.cpu.vectors import (
    AVX2,
    F16,
    F32,
    I32,
    VNNI,
    Builder,
    Value,
    add_products_by_two,
    as_bits,
    as_float,
    at,
    byte_at,
    filled,
    fused,
    half_at,
    load,
    number,
    repeat,
    splat,
    store,
    vector,
    word,
)  # fmt: skip

TOKENS_AT_ONCE = 8 if VNNI else 4
"""Tokens that share what is unpacked of a tile: as many as there are registers for."""
_CHAINS = 4
"""Sums of a group that a token alone is given: each product waits for the one before it in its sum."""
_LARGEST = 32767


def _tile(bits: int, tokens: int) -> Any:
    """The product of one tile with `tokens` tokens.

    tile(weight, groups, acts, scales, sums, out, stride), all addresses but `groups` and `stride`, the bytes from one
    token's 16 results to the next one's. Acts, scales and sums of a token follow those of the one before.
    """
    size = TILE * GROUP * bits // 8
    chains = _CHAINS if tokens == 1 else 1

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        weight, groups, acts, scales, sums, out, stride = args
        act_stride, scale_stride = (builder.mul(groups, number(n)) for n in (2 * GROUP, 4))

        def token_at(address: Value, step: Value, token: int) -> Value:
            return builder.add(address, builder.mul(step, number(token))) if token else address

        def one_group(index: Value, totals: Sequence[Value]) -> Sequence[Value]:
            group = builder.add(weight, builder.mul(index, number(group_bytes(bits))))
            act, scale, total = (
                builder.add(address, builder.mul(index, number(n)))
                for address, n in ((acts, 2 * GROUP), (scales, 4), (sums, 4))
            )
            places = [token_at(act, act_stride, token) for token in range(tokens)]
            dots = [[filled(I32, TILE, 0)] * chains for _ in range(tokens)]
            for pair, x in enumerate(pairs_of_columns(builder, bits, group)):
                for token, place in enumerate(places):
                    dot = dots[token][pair % chains]
                    dots[token][pair % chains] = add_products_by_two(builder, dot, x, place, 4 * pair)
            after = []
            bounds = [
                builder.fpext(load(builder, at(builder, group, size + offset), vector(F16, TILE)), vector(F32, TILE))
                for offset in range(0, 4 * TILE if bits == 4 else 2 * TILE, 2 * TILE)
            ]
            for token in range(tokens):
                by = splat(builder, load(builder, token_at(scale, scale_stride, token), F32), TILE)
                dot = builder.sitofp(reduce(builder.add, dots[token]), vector(F32, TILE))
                sum_so_far = fused(builder, dot, builder.fmul(bounds[0], by), totals[token])
                if bits == 4:
                    many = splat(builder, load(builder, token_at(total, scale_stride, token), F32), TILE)
                    sum_so_far = fused(builder, bounds[1], many, sum_so_far)
                after.append(sum_so_far)
            return after

        results = repeat(builder, groups, [filled(F32, TILE, 0.0)] * tokens, one_group)
        for token, result in enumerate(results):
            store(builder, result, token_at(out, stride, token))
        return context.get_dummy_value()

    @word
    def tile(_typing: Any, weight: Any, groups: Any, acts: Any, scales: Any, sums: Any, out: Any, stride: Any) -> Any:
        return types.void(*[types.int64] * 7), generate

    return tile


_one_4, _some_4, _one_8, _some_8 = (_tile(bits, tokens) for bits in (4, 8) for tokens in (1, TOKENS_AT_ONCE))


@jit
def tile_product(
    weight: int, bits: int, groups: int, acts: int, scales: int, sums: int, tokens: int, out: int, stride: int,
    room: int,
) -> None:  # fmt: skip
    """One tile with all tokens: `out` gets 16 float32 for each, `stride` bytes apart; `room` is `ROOM` bytes that no
    other thread writes."""
    if AVX2 and tokens >= TOGETHER:
        if bits == 4:
            unpacked_4(weight, groups, acts, scales, sums, tokens, out, stride, room)
        else:
            unpacked_8(weight, groups, acts, scales, sums, tokens, out, stride, room)
        return
    token = 0
    while token < tokens:
        a, s, t, o = (
            acts + token * groups * 64,
            scales + token * groups * 4,
            sums + token * groups * 4,
            out + token * stride,
        )
        if bits == 4:
            if token + TOKENS_AT_ONCE <= tokens:
                _some_4(weight, groups, a, s, t, o, stride)
                token += TOKENS_AT_ONCE
            else:
                _one_4(weight, groups, a, s, t, o, stride)
                token += 1
        elif token + TOKENS_AT_ONCE <= tokens:
            _some_8(weight, groups, a, s, t, o, stride)
            token += TOKENS_AT_ONCE
        else:
            _one_8(weight, groups, a, s, t, o, stride)
            token += 1


@jit
def round_row(x: Any, acts: Any, scales: Any, sums: Any) -> None:
    """Round `x` `[columns]` to `acts` int16 `[columns]`, in groups: `scales` and `sums` (of what was rounded)
    `[groups]`. A number that is none makes its group's scale none."""
    for group in range(len(scales)):
        first = group * GROUP
        bits = np.int32(0)  # of the largest without its sign; those of what is no number are larger than any number's
        for i in range(first, first + GROUP):
            bits = max(bits, as_bits(x[i]) & np.int32(0x7FFFFFFF))
        largest = as_float(bits)
        scale = largest * np.float32(1 / _LARGEST)
        inverse = np.float32(_LARGEST) / largest if largest > 0 else np.float32(0)
        total = np.int32(0)
        for i in range(first, first + GROUP):
            rounded = np.int32(np.rint(x[i] * inverse))
            acts[i] = rounded
            total += rounded
        scales[group] = scale
        sums[group] = scale * np.float32(total)


@jit
def _round_rows(counters: int, me: int, threads: int, x: Any, acts: Any, scales: Any, sums: Any) -> None:
    for row in range(me, len(x), threads):
        round_row(x[row], acts[row], scales[row], sums[row])


@jit
def _linear(
    counters: int, me: int, threads: int, weight: int, bits: int, tile_bytes: int, x: Any, acts: Any, scales: Any,
    sums: Any, out: Any, rooms: Any,
) -> None:  # fmt: skip
    _round_rows(counters, me, threads, x, acts, scales, sums)
    wait(counters, threads)
    tokens, rows, groups = len(x), out.shape[1], scales.shape[1]
    tiles = rows // TILE
    at_once = max(1, min(32, tiles // (threads * 8)))
    first = claim(counters, 0, at_once)
    while first < tiles:
        for tile in range(first, min(first + at_once, tiles)):
            tile_product(
                weight + tile * tile_bytes, bits, groups, acts.ctypes.data, scales.ctypes.data, sums.ctypes.data,
                tokens, out.ctypes.data + tile * TILE * 4, rows * 4, rooms[me].ctypes.data,
            )  # fmt: skip
        first = claim(counters, 0, at_once)
    wait(counters, threads)


def packed_linear(x: Tensor, weight: PackedWeight, team: Team) -> Tensor:
    """y = x W' for float32 `x` `[tokens, columns]`: float32 `[tokens, rows]`. Raises ValueError for another shape."""
    if x.dtype != torch.float32 or x.dim() != 2 or x.shape[1] != weight.columns or x.device.type != "cpu":
        raise ValueError(
            f"a product with {weight.rows} x {weight.columns} takes float32 [tokens, {weight.columns}] on a CPU, "
            f"not {x.dtype} {tuple(x.shape)} on {x.device}"
        )
    tokens, groups = x.shape[0], weight.columns // GROUP
    out = torch.empty(tokens, weight.rows)
    scales, sums = np.empty((2, tokens, groups), np.float32)
    acts = np.empty((tokens, weight.columns), np.int16)
    where = weight.data.data_ptr(), weight.bits, weight.data.stride(0)
    rooms = np.empty((team.threads, ROOM), np.uint8)
    team.run(_linear, 1, *where, x.contiguous().numpy(), acts, scales, sums, out.numpy(), rooms)
    return out


def packed_linear_torch(x: Tensor, weight: PackedWeight) -> Tensor:
    """The same in plain torch."""
    groups = x.view(x.shape[0], -1, GROUP)
    scale = groups.abs().amax(-1, keepdim=True) / _LARGEST
    rounded = (groups / scale.clamp(min=1e-30)).round() * scale
    return rounded.view(x.shape) @ unpack(weight).T


@jit
def _rows_at(weight: int, bits: int, tile_bytes: int, tokens: Any, out: Any) -> None:
    columns = out.shape[1]
    group_size = tile_bytes // (columns // GROUP)
    numbers = TILE * GROUP * bits // 8
    for index in range(len(tokens)):
        row = tokens[index] % TILE
        for group in range(columns // GROUP):
            start = weight + tokens[index] // TILE * tile_bytes + group * group_size
            scale = half_at(start + numbers + row * 2)
            minimum = half_at(start + numbers + TILE * 2 + row * 2) if bits == 4 else np.float32(0)
            for i in range(GROUP):
                if bits == 4:
                    word = byte_at(start + i // 8 * 64 + row * 4 + i % 2 * 2 + i % 8 // 4)
                    number = (word & 255) >> (4 * (i % 4 // 2)) & 15
                else:
                    number = byte_at(start + i // 2 * 32 + row * 2 + i % 2)
                out[index, group * GROUP + i] = np.float32(number) * scale + minimum


def packed_rows(weight: PackedWeight, tokens: Tensor) -> Tensor:
    """The rows of `tokens` `[tokens]`, float32 `[tokens, columns]`. Raises ValueError for a row that is not there."""
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < weight.rows:
        raise ValueError(f"rows {int(tokens.min())} to {int(tokens.max())} of a weight of {weight.rows}")
    out = torch.empty(len(tokens), weight.columns)
    _rows_at(weight.data.data_ptr(), weight.bits, weight.data.stride(0), tokens.numpy(), out.numpy())
    return out


def packed_rows_torch(weight: PackedWeight, tokens: Tensor) -> Tensor:
    """The same in plain torch."""
    tiles = unpack(PackedWeight(weight.data[tokens // TILE], weight.bits))
    return tiles.view(len(tokens), TILE, -1)[torch.arange(len(tokens)), tokens % TILE]
