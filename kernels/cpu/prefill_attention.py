"""Attention of many tokens of one chat over its window and over themselves, block by block.

Blocks of 64 keys are laid out once for some hundred queries, which then take them one after another with a running
softmax (Rabe and Staats, arXiv 2112.05682; Dao et al., arXiv 2205.14135): no scores of a whole window, no copy of one.
The query heads of a KV head share its blocks. A key's place in a block is its position's, so a token's result does not
depend on how its prompt was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from torch import Tensor

from kernels.cpu.compiled import jit
from kernels.cpu.decode_attention import exponential
from kernels.cpu.page_rows import read_row, units
from kernels.cpu.team import Team, claim, wait
from kernels.cpu.vectors import (
    F32,
    I32,
    Builder,
    Value,
    across,
    at,
    filled,
    fused,
    load,
    number,
    repeat,
    splat,
    store,
    vector,
    word,
)  # fmt: skip

BLOCK = 64
"""Keys of a block: laid out, those of 64 dimensions are 16 KB."""
DIMS = 16
"""The size of a head must be a multiple of it."""
_ROWS = 6
"""Queries that are computed together: 6 x 16 sums are 12 of the 16 registers of AVX2."""
_AT_ONCE = 192
"""Queries that share what is laid out, about: what belongs to them fits the second cache."""
_LANES = 8


@word
def _outer(_typing: Any, x: Any, x_stride: Any, y: Any, y_stride: Any, count: Any, out: Any, out_stride: Any) -> Any:
    """out[6, 16] += sum over i < count of x[6, i] * y[i, 16], float32, strides in bytes."""

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        x, x_stride, y, y_stride, count, out, out_stride = args
        wide = vector(F32, 8)

        def row(address: Value, stride: Value, index: int) -> Value:
            return builder.add(address, builder.mul(stride, number(index)))

        def one(index: Value, sums: Sequence[Value]) -> Sequence[Value]:
            right = builder.add(y, builder.mul(index, y_stride))
            halves = [load(builder, at(builder, right, offset), wide) for offset in (0, 32)]
            after = []
            for r in range(_ROWS):
                place = builder.add(row(x, x_stride, r), builder.mul(index, number(4)))
                left = splat(builder, load(builder, place, F32), 8)
                after += [fused(builder, left, half, sums[2 * r + h]) for h, half in enumerate(halves)]
            return after

        places = [at(builder, row(out, out_stride, r), offset) for r in range(_ROWS) for offset in (0, 32)]
        begin = [load(builder, place, wide) for place in places]
        for total, place in zip(repeat(builder, count, begin, one), places, strict=True):
            store(builder, total, place)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """What consecutive tokens may see, as columns: the sinks, then the ring and the tokens themselves, in order.

    where: int64 `[columns]`, the slot of a key, or -1 - i for that of the chunk's own token i.
    blocks: int64 `[blocks, 4]`: first column, how many, the place of the first in the block, 1 for sinks.
    seen: int64 `[tokens, 4]`: the columns that a token sees are [0], [1] of the sinks and [2], [3] of the others.
    """

    where: Tensor
    blocks: Tensor
    seen: Tensor


def chunk_keys(slots: Tensor, positions: Tensor, sinks: int, seen: Tensor) -> ChunkKeys:
    """Of columns at ascending `positions` int64 `[columns]`, the first `sinks` of which are sinks and the last
    `len(seen)` the tokens' own; `slots` are those of all but the own. `seen` see `ChunkKeys`."""
    tokens = len(seen)
    number_of = positions // BLOCK
    begins = torch.ones(len(positions), dtype=torch.bool)
    begins[1:] = number_of[1:] != number_of[:-1]
    if sinks < len(positions):
        begins[sinks] = True
    first = begins.nonzero().squeeze(1)
    many = torch.diff(first, append=torch.tensor([len(positions)]))
    blocks = torch.stack((first, many, positions[first] % BLOCK, (first < sinks).long()), dim=1)
    return ChunkKeys(torch.cat((slots, -1 - torch.arange(tokens))), blocks, seen)


@jit
def _lay_out(
    block: Any, where: Any, k: Any, v: Any, new_k: Any, new_v: Any, head: int, keys: Any, values: Any, row: Any
) -> None:
    """`keys` `[dim, 64]` and `values` `[64, dim]` of a block, zero where it has none; `row` `[dim]` is room."""
    first, count, place = block[0], block[1], block[2]
    dim = len(keys)
    if count < BLOCK:
        keys[:] = 0
        values[:] = 0
    for i in range(count):
        slot, to = where[first + i], place + i
        if slot >= 0:
            read_row(k[head, slot], row)
            read_row(v[head, slot], values[to])
        else:
            row[:] = new_k[-1 - slot, head]
            values[to] = new_v[-1 - slot, head]
        for d in range(dim):
            keys[d, to] = row[d]


def _exponential(builder: Builder, x: Value) -> Value:
    """e^x of 8 float32 x <= 0, as `decode_attention.exponential`."""

    def all_of(value: float) -> Value:
        return filled(F32, _LANES, value)

    x = builder.select(builder.fcmp_ordered("<", x, all_of(-87.0)), all_of(-87.0), x)
    halves = fused(builder, x, all_of(1.44269504), all_of(0.5))
    kind = ir.FunctionType(x.type, [x.type])
    whole = builder.call(builder.module.declare_intrinsic(f"llvm.floor.v{_LANES}f32", (), kind), [halves])
    r = fused(builder, whole, all_of(-0.693359375), x)
    r = fused(builder, whole, all_of(2.12194440e-4), r)
    p = all_of(1.9875691500e-4)
    for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        p = fused(builder, p, r, all_of(term))
    p = fused(builder, p, builder.fmul(r, r), builder.fadd(r, all_of(1.0)))
    power = builder.add(builder.fptosi(whole, vector(I32, _LANES)), filled(I32, _LANES, 127))
    return builder.fmul(p, builder.bitcast(builder.shl(power, filled(I32, _LANES, 23)), x.type))


@word
def _weights(_typing: Any, scores: Any, low: Any, high: Any, scale: Any, before: Any, found: Any) -> Any:
    """Of 64 scores those in [low, high) become weights, e^(score * scale - largest), the others 0. The largest, which
    is at least `before`, and the sum of the weights go to `found`.

    Compared are bits, as in `decode_attention`: what is no number is larger than any.
    """

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        scores, low, high, scale, before, found = args
        wide, whole = vector(F32, _LANES), vector(I32, _LANES)
        first, end = (splat(builder, builder.trunc(x, I32), _LANES) for x in (low, high))
        by = splat(builder, scale, _LANES)

        def larger(x: Value, y: Value) -> Value:
            return builder.select(builder.icmp_signed(">", x, y), x, y)

        def in_order(bits: Value) -> Value:
            sign = builder.ashr(bits, filled(I32, _LANES, 31))
            return builder.xor(bits, builder.and_(sign, filled(I32, _LANES, 0x7FFFFFFF)))

        most, seen, values = in_order(builder.bitcast(splat(builder, before, _LANES), whole)), [], []
        for lane in range(0, BLOCK, _LANES):
            place = ir.Constant(whole, list(range(lane, lane + _LANES)))
            inside = builder.and_(
                builder.icmp_signed(">=", place, first), builder.icmp_signed("<", place, end)
            )  # fmt: skip
            value = builder.fmul(load(builder, at(builder, scores, 4 * lane), wide), by)
            most = larger(most, builder.select(inside, in_order(builder.bitcast(value, whole)), most))
            seen.append(inside)
            values.append(value)
        largest = splat(builder, across(builder, most, larger), _LANES)
        largest = builder.bitcast(in_order(largest), wide)
        total = filled(F32, _LANES, 0.0)
        for index, (inside, value) in enumerate(zip(seen, values, strict=True)):
            weight = _exponential(builder, builder.fsub(value, largest))
            weight = builder.select(inside, weight, filled(F32, _LANES, 0.0))
            store(builder, weight, at(builder, scores, 4 * _LANES * index))
            total = builder.fadd(total, weight)
        store(builder, builder.extract_element(largest, ir.Constant(I32, 0)), found)
        store(builder, across(builder, total, builder.fadd), at(builder, found, 4))
        return context.get_dummy_value()

    takes = types.int64, types.int64, types.int64, types.float32, types.float32, types.int64
    return types.void(*takes), generate


@jit
def _weigh(score: Any, low: int, high: int, scale: float, running: Any, out: Any, found: Any) -> None:
    """Scores [low, high) of a row become weights, the others 0; `running` (largest score, sum of weights) and `out`
    `[dim]` are brought to the new largest. `found` is room for two numbers."""
    _weights(score.ctypes.data, low, high, scale, running[0], found.ctypes.data)
    before = exponential(running[0] - found[0])
    running[0] = found[0]
    running[1] = running[1] * before + found[1]
    if before != 1:
        for d in range(len(out)):
            out[d] *= before


@jit
def _block(block: Any, seen: Any, first: int, end: int, group: int, scale: float, room: Any) -> None:
    """The queries of tokens [first, end) over one block that is laid out."""
    queries, outs, running, keys, values, scores, found, _ = room
    dim, rows = queries.shape[1], (end - first) * group
    begin, count, place, sinks = block[0], block[1], block[2], block[3]
    which = 0 if sinks else 2
    for row in range(0, rows, _ROWS):
        last = min(row + _ROWS, rows)
        some = False
        for r in range(row, last):
            span = seen[first + r // group]
            some |= max(span[which], begin) < min(span[which + 1], begin + count)
        if not some:
            continue
        scores[:] = 0
        for column in range(0, BLOCK, 16):
            _outer(
                queries[row:].ctypes.data, dim * 4, keys[0, column:].ctypes.data, BLOCK * 4, dim,
                scores[0, column:].ctypes.data, BLOCK * 4,
            )  # fmt: skip
        for r in range(row, last):
            span = seen[first + r // group]
            low = max(span[which], begin) - begin + place
            high = min(span[which + 1], begin + count) - begin + place
            if low < high:
                _weigh(scores[r - row], low, high, scale, running[r], outs[r], found)
            else:
                scores[r - row] = 0
        for d in range(0, dim, 16):
            _outer(
                scores.ctypes.data, BLOCK * 4, values[0, d:].ctypes.data, dim * 4, BLOCK, outs[row, d:].ctypes.data,
                dim * 4,
            )  # fmt: skip


@jit
def _take(q: Any, first: int, end: int, head: int, group: int, queries: Any) -> None:
    for token in range(first, end):
        for g in range(group):
            queries[(token - first) * group + g] = q[token, head * group + g]


@jit
def attend_tokens(
    first: int, end: int, head: int, q_window: Any, q_sink: Any, new_k: Any, new_v: Any, k: Any, v: Any, where: Any,
    blocks: Any, seen: Any, scale: float, room: Any, out: Any,
) -> None:  # fmt: skip
    """Tokens [first, end) of a chunk by the query heads of one KV head; `out` `[tokens, q_heads, dim]`."""
    queries, outs, running, keys, values, _, _, row = room
    group, dim = q_window.shape[1] // k.shape[0], q_window.shape[2]
    outs[:] = 0
    running[:, 0] = -np.inf
    running[:, 1] = 0
    taken = -1
    for index in range(len(blocks)):
        block = blocks[index]
        which = 0 if block[3] else 2
        some = False
        for token in range(first, end):
            some |= max(seen[token, which], block[0]) < min(seen[token, which + 1], block[0] + block[1])
        if not some:
            continue
        if block[3] != taken:
            taken = block[3]
            _take(q_sink if taken else q_window, first, end, head, group, queries)
        _lay_out(block, where, k, v, new_k, new_v, head, keys, values, row)
        _block(block, seen, first, end, group, scale, room)
    for token in range(first, end):
        for g in range(group):
            row = (token - first) * group + g
            for d in range(dim):
                out[token, head * group + g, d] = outs[row, d] / running[row, 1]


@jit
def _attend(
    counters: int, me: int, threads: int, at_once: int, q_window: Any, q_sink: Any, new_k: Any, new_v: Any, k: Any,
    v: Any, where: Any, blocks: Any, seen: Any, scale: float, rooms: Any, out: Any,
) -> None:  # fmt: skip
    tokens, kv_heads = len(q_window), k.shape[0]
    lots = -(-tokens // at_once)
    room = (
        rooms[0][me],
        rooms[1][me],
        rooms[2][me],
        rooms[3][me],
        rooms[4][me],
        rooms[5][me],
        rooms[6][me],
        rooms[7][me],
    )
    task = claim(counters, 0, 1)
    while task < lots * kv_heads:
        # The last tokens see most: they are begun first, so that no thread is left with one of them at the end.
        lot, head = lots - 1 - task // kv_heads, task % kv_heads
        attend_tokens(
            lot * at_once, min(tokens, (lot + 1) * at_once), head, q_window, q_sink, new_k, new_v, k, v, where, blocks,
            seen, scale, room, out,
        )  # fmt: skip
        task = claim(counters, 0, 1)
    wait(counters, threads)


def tokens_at_once(group: int) -> int:
    """Tokens whose queries, `group` for each KV head, share what is laid out."""
    return max(1, _AT_ONCE // group)


def rooms_for(group: int, dim: int, threads: int) -> tuple[Any, ...]:
    """What `attend_tokens` computes on the way, each thread's in front."""
    rows = -(-tokens_at_once(group) * group // _ROWS) * _ROWS

    def floats(*shape: int) -> Any:
        return np.zeros((threads, *shape), np.float32)

    return (
        floats(rows, dim), floats(rows, dim), floats(rows, 2), floats(dim, BLOCK), floats(BLOCK, dim),
        floats(_ROWS, BLOCK), floats(2), floats(dim),
    )  # fmt: skip


class PrefillAttention:
    """Attention of chunks for one shape of heads: what is computed on the way is kept from one call to the next."""

    def __init__(self, kv_heads: int, group: int, dim: int, team: Team) -> None:
        if dim % DIMS:
            raise ValueError(f"heads of {dim}; a multiple of {DIMS} is taken")
        self._shape, self._team = (kv_heads, group, dim), team
        self._at_once, self._rooms = tokens_at_once(group), rooms_for(group, dim, team.threads)

    def __call__(
        self, q_window: Tensor, q_sink: Tensor, new: tuple[Tensor, Tensor], pages: tuple[Tensor, Tensor],
        keys: ChunkKeys, scale: float,
    ) -> Tensor:  # fmt: skip
        """`q_window`, `q_sink` `[tokens, q_heads, dim]`, `new` keys and values `[tokens, kv_heads, dim]` of the chunk,
        all float32, `pages` those of slots `[kv_heads, slots, dim]`; returns `[tokens, q_heads, dim]`.

        Each token must see itself. Raises ValueError for other shapes and pages.
        """
        (kv_heads, group, dim), tokens = self._shape, len(keys.seen)
        wanted = [(tokens, kv_heads * group, dim)] * 2 + [(tokens, kv_heads, dim)] * 2
        given = [tuple(x.shape) for x in (q_window, q_sink, *new)]
        if given != wanted:
            raise ValueError(f"shapes {given}; {wanted} are taken")
        out = torch.empty(q_window.shape)
        arrays = [x.contiguous().numpy() for x in (q_window, q_sink, *new)]
        pages_now = [units(x) for x in pages]
        where = [x.numpy() for x in (keys.where, keys.blocks, keys.seen)]
        self._team.run(
            _attend, 1, self._at_once, *arrays, *pages_now, *where, np.float32(scale), self._rooms, out.numpy()
        )
        return out
