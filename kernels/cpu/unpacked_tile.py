"""Some groups of a tile unpacked to 16 bits, once for all tokens of a call: the way of x86 with AVX2 and no VNNI.

There a product by two is two instructions (`vpmaddwd`, `vpaddd`), and 16 registers hold the sums of 4 tokens; unpacking
for every 4 of them took a third of the time. So 128 tokens take 4.0 ms for 3072 x 576 in 4 bits, not 6.5 (one thread,
Zen 3). Sums are the same to the bit: those of a group are whole numbers, and groups are added in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from kernels.cpu.compiled import jit
from kernels.cpu.packed_weights import GROUP, TILE, group_bytes
from kernels.cpu.vectors import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    Builder,
    Value,
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

GROUPS_AT_ONCE = 16
"""Groups that are unpacked at a time: their 16 KB and what of 4 tokens goes with them fit the first cache."""
TOGETHER = 4
"""Tokens whose sums are in registers at once."""
_LANES = 8
_NUMBERS = 2 * TILE * GROUP
_BOUNDS = 2 * 4 * TILE
ROOM = GROUPS_AT_ONCE * (_NUMBERS + _BOUNDS)
"""Bytes that a thread needs: numbers int16 `[groups, 16 pairs, 16 rows, 2]`, then float32 `[groups, 2, 16]`, scales and
minima."""


def pairs_of_columns(builder: Builder, bits: int, group: Value) -> list[Value]:
    """Pairs of columns of a packed group, each a vector of 16 rows x 2 columns of 16 bits."""
    wide = vector(I16, 2 * TILE)
    if bits == 8:
        places = [at(builder, group, pair * 2 * TILE) for pair in range(GROUP // 2)]
        return [builder.sext(load(builder, place, vector(I8, 2 * TILE)), wide) for place in places]
    pairs = []
    for four in range(GROUP // 8):
        words = load(builder, at(builder, group, four * 4 * TILE), wide)
        for part in range(4):
            shifted = builder.lshr(words, filled(I16, 2 * TILE, 4 * part)) if part else words
            pairs.append(builder.and_(shifted, filled(I16, 2 * TILE, 15)))
    return pairs


def _unpacker(bits: int) -> Any:
    """unpack(weight, groups, numbers, bounds): all addresses but `groups`."""
    size = TILE * GROUP * bits // 8

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        weight, groups, numbers, bounds = args

        def one(index: Value, _: Sequence[Value]) -> Sequence[Value]:
            group = builder.add(weight, builder.mul(index, number(group_bytes(bits))))
            to, bound = (
                builder.add(x, builder.mul(index, number(n))) for x, n in ((numbers, _NUMBERS), (bounds, _BOUNDS))
            )
            for pair, x in enumerate(pairs_of_columns(builder, bits, group)):
                store(builder, x, at(builder, to, 4 * TILE * pair))
            for kind in range(2 if bits == 4 else 1):
                half = load(builder, at(builder, group, size + 2 * TILE * kind), vector(F16, TILE))
                store(builder, builder.fpext(half, vector(F32, TILE)), at(builder, bound, 4 * TILE * kind))
            return []

        repeat(builder, groups, [], one)
        return context.get_dummy_value()

    @word
    def unpack(_typing: Any, weight: Any, groups: Any, numbers: Any, bounds: Any) -> Any:
        return types.void(*[types.int64] * 4), generate

    return unpack


def _group_sums(builder: Builder, tokens: int, numbers: Value, acts: Value, stride: Value) -> list[tuple[Value, Value]]:
    """The whole sums of a group for each token, rows 0 to 7 and 8 to 15, acts `stride` bytes apart.

    Written as instructions: LLVM reorders the loads of all tokens until it keeps most of them in memory.
    """
    count = 2 * tokens + 4
    names = [f"${i}" for i in range(count + 4)]
    sums, (low, high, act, product) = names[: 2 * tokens], names[2 * tokens : count]
    weight, first, step, three = names[count:]
    places = [f"({first})", f"({first},{step})", f"({first},{step},2)", f"({first},{three})"]
    code = []
    for pair in range(GROUP // 2):
        code += [f"vmovdqu {4 * TILE * pair + 32 * half}({weight}), {x}" for half, x in enumerate((low, high))]
        for token in range(tokens):
            code.append(f"vpbroadcastd {4 * pair}{places[token]}, {act}")
            for x, total in zip((low, high), sums[2 * token :], strict=False):
                if pair == 0:
                    code.append(f"vpmaddwd {x}, {act}, {total}")
                else:
                    code += [f"vpmaddwd {x}, {act}, {product}", f"vpaddd {product}, {total}, {total}"]
    kind = ir.FunctionType(ir.LiteralStructType([vector(I32, _LANES)] * count), [I64] * 4)
    takes = ",".join(["=&x"] * count + ["r"] * 4 + ["~{memory}"])
    args = [numbers, acts, stride, builder.mul(stride, number(3))]
    found = builder.asm(kind, "\n".join(code), takes, args, True)
    return [(builder.extract_value(found, 2 * t), builder.extract_value(found, 2 * t + 1)) for t in range(tokens)]


def _product(bits: int, tokens: int) -> Any:
    """product(numbers, bounds, groups, acts, scales, sums, act_stride, stride, out, out_stride, fresh).

    All addresses but `groups`, the strides, bytes from one token's to the next one's (`stride` that of scales and
    sums), and `fresh`: 1 where what lies in `out` is not gone on from.
    """
    wide = vector(F32, _LANES)

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        numbers, bounds, groups, acts, scales, sums, act_stride, stride, out, out_stride, fresh = args

        def of(address: Value, step: Value, token: int) -> Value:
            return builder.add(address, builder.mul(step, number(token))) if token else address

        def one_group(index: Value, totals: Sequence[Value]) -> Sequence[Value]:
            def here(address: Value, size: int) -> Value:
                return builder.add(address, builder.mul(index, number(size)))

            bound, scale, many = here(bounds, _BOUNDS), here(scales, 4), here(sums, 4)
            dots = _group_sums(builder, tokens, here(numbers, _NUMBERS), here(acts, 2 * GROUP), act_stride)
            after = []
            for token, halves in enumerate(dots):
                by, all_of_it = (
                    splat(builder, load(builder, of(x, stride, token), F32), _LANES) for x in (scale, many)
                )
                for half, dot in enumerate(halves):
                    unit = builder.fmul(load(builder, at(builder, bound, 32 * half), wide), by)
                    total = fused(builder, builder.sitofp(dot, wide), unit, totals[2 * token + half])
                    if bits == 4:
                        minimum = load(builder, at(builder, bound, 4 * TILE + 32 * half), wide)
                        total = fused(builder, minimum, all_of_it, total)
                    after.append(total)
            return after

        places = [at(builder, of(out, out_stride, token), 32 * half) for token in range(tokens) for half in (0, 1)]
        zero, anew = filled(F32, _LANES, 0.0), builder.icmp_signed("!=", fresh, number(0))
        begin = [builder.select(anew, zero, load(builder, place, wide)) for place in places]
        for total, place in zip(repeat(builder, groups, begin, one_group), places, strict=True):
            store(builder, total, place)
        return context.get_dummy_value()

    @word
    def product(
        _typing: Any, numbers: Any, bounds: Any, groups: Any, acts: Any, scales: Any, sums: Any, act_stride: Any,
        stride: Any, out: Any, out_stride: Any, fresh: Any,
    ) -> Any:  # fmt: skip
        return types.void(*[types.int64] * 11), generate

    return product


def _tile(bits: int) -> Callable[..., None]:
    unpack, one, four, size = _unpacker(bits), _product(bits, 1), _product(bits, TOGETHER), group_bytes(bits)

    @jit
    def tile(
        weight: int, groups: int, acts: int, scales: int, sums: int, tokens: int, out: int, stride: int, room: int
    ) -> None:
        bounds = room + GROUPS_AT_ONCE * _NUMBERS
        for begin in range(0, groups, GROUPS_AT_ONCE):
            some, fresh = min(GROUPS_AT_ONCE, groups - begin), 1 if begin == 0 else 0
            unpack(weight + begin * size, some, room, bounds)
            token = 0
            while token < tokens:
                first = token * groups + begin
                a, s, t, o = acts + first * 2 * GROUP, scales + first * 4, sums + first * 4, out + token * stride
                if token + TOGETHER <= tokens:
                    four(room, bounds, some, a, s, t, groups * 2 * GROUP, groups * 4, o, stride, fresh)
                    token += TOGETHER
                else:
                    one(room, bounds, some, a, s, t, groups * 2 * GROUP, groups * 4, o, stride, fresh)
                    token += 1

    return tile


unpacked_4, unpacked_8 = _tile(4), _tile(8)
"""unpacked(weight, groups, acts, scales, sums, tokens, out, stride, room): one tile with all tokens, addresses but
`groups`, `tokens` and `stride`; `room` is `ROOM` bytes of this thread's."""
