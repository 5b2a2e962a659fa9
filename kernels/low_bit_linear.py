"""y = x W' + b for a few tokens and a weight in 8 or 4 bits: what decoding does with it, reading it once.

A program takes BLOCK_N rows of the weight and, group by group, multiplies the whole numbers with x on the tensor cores
(16-bit types hold them exactly) and adds the product, times the group's scales, to a float32 sum; in 4 bits it adds the
minima times the group's sum of x, which is a product by ones. So no weight is rounded on the way.

Where the rows alone would leave processors idle, each program takes a part of the columns only, and a second kernel
adds the parts up in their order. The parts depend on the weight and the GPU, never on the number of tokens, and a token
has a row of the tile for itself: what it gets is the same to the bit alone and beside others, and on every run.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.arguments import Layout, expect, expect_dims, expect_float
from kernels.low_bit_weights import GROUP, TILE, LowBitWeight, unpack_low_bit
from kernels.runtime import CompileCase, ceil_div, dot, jit, require, tl, whole

MAX_TOKENS = 16
"""Tokens of one call: the rows of the smallest tensor-core tile."""
MAX_SPLITS = 16
_BLOCK_N = 64
"""With 128 rows, sm_120 spills in float16 and float32."""
_WARPS, _STAGES = 4, 4
_LEAST_GROUPS = 4
"""Of a split: one for each stage of the pipeline."""
_SUM_COLUMNS = 1024


@jit
def _beside(
    x_row: tl.tensor, scale_row: tl.tensor, minimum_row: tl.tensor, group: tl.tensor, end: tl.tensor,
    columns: tl.tensor, asked: tl.tensor, held: tl.tensor, BITS: tl.constexpr, TILE: tl.constexpr, GROUP: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """What a group's numbers are multiplied with: x, in 4 bits in two halves, the scales, and in 4 bits the minima."""
    PART: tl.constexpr = GROUP * BITS // 8
    column = group * GROUP + tl.arange(0, PART)[None, :]
    at, there = group * TILE, held & (group < end)
    xs = tl.load(x_row + group * GROUP, mask=asked & (column < columns), other=0.0)
    scales = tl.load(scale_row + at, mask=there, other=0.0)
    rest, minima = xs, scales
    if BITS == 4:
        rest = tl.load(x_row + group * GROUP + PART, mask=asked & (column + PART < columns), other=0.0)
        minima = tl.load(minimum_row + at, mask=there, other=0.0)
    return xs, rest, scales, minima


@jit
def _products(
    x: tl.tensor, numbers: tl.tensor, scale: tl.tensor, minimum: tl.tensor, bias: tl.tensor, out: tl.tensor,
    tokens: tl.tensor, rows: tl.tensor, columns: tl.tensor, groups: tl.tensor, x_stride: tl.tensor,
    BITS: tl.constexpr, BIASED: tl.constexpr, SPLITS: tl.constexpr, TILE: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """One split of BLOCK_N rows, for all tokens."""
    split = tl.program_id(1)
    row, token = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M)
    held = row < tl.cdiv(rows, TILE) * TILE
    # A large head passes 2**31 numbers; the groups of one tile do not.
    group_row = (row // TILE).to(tl.int64) * groups * TILE + row % TILE
    PART: tl.constexpr = GROUP * BITS // 8
    part = tl.arange(0, PART)
    numbers_row = numbers + group_row[:, None] * PART + part[None, :]
    scale_row, minimum_row = scale + group_row, minimum + group_row
    x_row = x + token[:, None] * x_stride + part[None, :]
    asked = (token < tokens)[:, None]
    ones = tl.full([PART, BLOCK_N], 1.0, tl.float32).to(x.dtype.element_ty)

    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    span = tl.cdiv(groups, SPLITS)
    first, end = split * span, tl.minimum(split * span + span, groups)
    # What is small is read one group ahead by hand: the compiler does so for the numbers only.
    xs, rest, scales, minima = _beside(
        x_row, scale_row, minimum_row, first, end, columns, asked, held, BITS, TILE, GROUP
    )
    for group in range(first, end):
        packed = tl.load(numbers_row + group * TILE * PART, mask=held[:, None], other=0)
        ahead = _beside(x_row, scale_row, minimum_row, group + 1, end, columns, asked, held, BITS, TILE, GROUP)
        if BITS == 8:
            acc += dot(xs, tl.trans(whole(packed, xs.dtype))) * scales.to(tl.float32)[None, :]
        else:
            low, high = (packed & 15).to(tl.int8, bitcast=True), (packed >> 4).to(tl.int8, bitcast=True)
            product = dot(xs, tl.trans(whole(low, xs.dtype))) + dot(rest, tl.trans(whole(high, xs.dtype)))
            acc += product * scales.to(tl.float32)[None, :]
            acc += (dot(xs, ones) + dot(rest, ones)) * minima.to(tl.float32)[None, :]
        xs, rest, scales, minima = ahead
    if BIASED:
        acc += tl.load(bias + row, mask=row < rows, other=0.0).to(tl.float32)[None, :]
    target = out + (split * tokens + token)[:, None] * rows + row[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=asked & (row < rows)[None, :])


@jit
def _sum_splits(
    partial: tl.tensor, bias: tl.tensor, out: tl.tensor, rows: tl.tensor, BIASED: tl.constexpr, SPLITS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:  # fmt: skip
    """COLUMNS values of one token, the splits added in their order."""
    token, tokens = tl.program_id(0), tl.num_programs(0)
    row = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    held = row < rows
    total = tl.zeros([COLUMNS], tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(partial + (split * tokens + token) * rows + row, mask=held, other=0.0)
    if BIASED:
        total += tl.load(bias + row, mask=held, other=0.0).to(tl.float32)
    tl.store(out + token * rows + row, total.to(out.dtype.element_ty), mask=held)


def low_bit_linear(x: Tensor, weight: LowBitWeight, bias: Tensor | None = None, *, splits: int = 1) -> Tensor:
    """y = x W' + b, summed in float32, by the Triton kernel; `[tokens, rows]`, contiguous, in the type of x.

    - `x`: `[tokens, columns]`, at most MAX_TOKENS, float32, float16 or bfloat16, rows of any stride.
    - `bias`: `[rows]`, as x. `splits`: see `low_bit_splits`; it changes the order of the sum and nothing else.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    _check(x, weight, bias)
    if x.shape[0] > MAX_TOKENS or not 1 <= splits <= MAX_SPLITS:
        raise ValueError(
            f"x holds {x.shape[0]} tokens and splits is {splits}: the kernel takes at most {MAX_TOKENS}, and 1 to "
            f"{MAX_SPLITS} splits"
        )
    require("low_bit_linear", "low_bit_linear_torch", x.device)
    tokens, groups = x.shape[0], weight.numbers.shape[1]
    out = x.new_empty((tokens, weight.rows))
    sums = out if splits == 1 else x.new_empty((splits, tokens, weight.rows), dtype=torch.float32)
    minimum, addend = (weight.scale if each is None else each for each in (weight.minimum, bias))
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _products[(ceil_div(weight.rows, _BLOCK_N), splits)](
            x, weight.numbers, weight.scale, minimum, addend, sums, tokens, weight.rows, weight.columns, groups,
            x.stride(0), BITS=weight.bits, BIASED=bias is not None and splits == 1, SPLITS=splits, TILE=TILE,
            GROUP=GROUP, BLOCK_M=MAX_TOKENS, BLOCK_N=_BLOCK_N, num_warps=_WARPS, num_stages=_STAGES,
        )  # fmt: skip
        if splits > 1:
            _sum_splits[(tokens, ceil_div(weight.rows, _SUM_COLUMNS))](
                sums, addend, out, weight.rows, BIASED=bias is not None, SPLITS=splits, COLUMNS=_SUM_COLUMNS,
                num_warps=_WARPS,
            )  # fmt: skip
    return out


def low_bit_linear_torch(x: Tensor, weight: LowBitWeight, bias: Tensor | None = None, *, splits: int = 1) -> Tensor:
    """What `low_bit_linear` computes, in plain torch, on any device and for any number of tokens; `splits` changes
    nothing here."""
    _check(x, weight, bias)
    y = x.float() @ unpack_low_bit(weight, torch.arange(weight.rows, device=x.device)).T
    return (y if bias is None else y + bias.float()).to(x.dtype)


def low_bit_splits(rows: int, columns: int, processors: int) -> int:
    """Splits for `low_bit_linear`: four programs for each of the GPU's `processors`, as far as the columns go."""
    wanted = ceil_div(4 * processors, ceil_div(rows, _BLOCK_N))
    return max(1, min(wanted, ceil_div(columns, GROUP) // _LEAST_GROUPS, MAX_SPLITS))


def _check(x: Tensor, weight: LowBitWeight, bias: Tensor | None) -> None:
    """Raise ValueError with one sentence about the first argument that does not fit."""
    expect_dims("x", x, "[tokens, columns]")
    expect_float("x", x)
    expect("x", x, (x.shape[0], weight.columns), x.dtype, ("the weight", weight.numbers), Layout.ROWS)
    if bias is not None:
        expect("bias", bias, (weight.rows,), x.dtype, ("x", x), Layout.DENSE)


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: both numbers of bits in each type, with and without splits."""
    for bits, kind, splits, biased in (
        (8, "bf16", 1, False), (4, "bf16", 1, True), (8, "bf16", 8, False), (4, "bf16", 8, False),
        (8, "fp16", 1, True), (4, "fp16", 8, False), (8, "fp32", 1, False), (4, "fp32", 8, False),
    ):  # fmt: skip
        values, name = f"*{kind}:16", f"{kind} {bits} bits splits{splits}"
        yield CompileCase(
            f"low_bit_linear {name}{' biased' * biased}", _products,
            {"x": values, "numbers": "*i8:16" if bits == 8 else "*u8:16", "scale": "*fp16:16", "minimum": "*fp16:16"}
            | {"bias": values, "out": "*fp32:16" if splits > 1 else values, "tokens": "i32"}
            | {"rows": "i32:16", "columns": "i32:16", "groups": "i32", "x_stride": "i32:16"},
            {"BITS": bits, "BIASED": biased, "SPLITS": splits, "TILE": TILE, "GROUP": GROUP, "BLOCK_M": MAX_TOKENS,
             "BLOCK_N": _BLOCK_N}, _WARPS, _STAGES,
        )  # fmt: skip
        if splits > 1:
            yield CompileCase(
                f"sum_splits {name}", _sum_splits,
                {"partial": "*fp32:16", "bias": values, "out": values, "rows": "i32:16"},
                {"BIASED": biased, "SPLITS": splits, "COLUMNS": _SUM_COLUMNS}, _WARPS, 3,
            )  # fmt: skip
