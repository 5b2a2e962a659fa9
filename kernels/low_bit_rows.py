"""Rows of a weight in 8 or 4 bits as they are: an embedding's lookup, and the weight of a prompt's product in pieces.

w = number * scale + minimum in float32, rounded once. The numbers are read once and nothing but the result is written.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.arguments import FLOATS, Layout, expect, expect_dims
from kernels.low_bit_weights import GROUP, TILE, LowBitWeight, unpack_low_bit
from kernels.runtime import CompileCase, ceil_div, jit, require, tl

_BLOCK_R, _BLOCK_G = 16, 4
_WARPS = 4


@jit
def _rows(
    numbers: tl.tensor, scale: tl.tensor, minimum: tl.tensor, wanted: tl.tensor, out: tl.tensor, count: tl.tensor,
    rows: tl.tensor, columns: tl.tensor, groups: tl.tensor, BITS: tl.constexpr, TILE: tl.constexpr,
    GROUP: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_G: tl.constexpr,
) -> None:  # fmt: skip
    """BLOCK_G groups of BLOCK_R rows; NaN for a row that is not there."""
    index, group = (
        tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R),
        tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G),
    )
    row = tl.load(wanted + index, mask=index < count, other=-1)
    held = ((row >= 0) & (row < rows))[:, None] & (group < groups)[None, :]
    at = (row // TILE * groups * TILE + row % TILE)[:, None] + group[None, :] * TILE
    PART: tl.constexpr = GROUP * BITS // 8
    part = tl.arange(0, PART)[None, None, :]
    packed = tl.load(numbers + at[:, :, None] * PART + part, mask=held[:, :, None], other=0)
    scales = tl.load(scale + at, mask=held, other=float("nan")).to(tl.float32)[:, :, None]
    column = group[None, :, None] * GROUP + part
    target = out + index.to(tl.int64)[:, None, None] * columns + column
    asked = (index < count)[:, None, None]
    if BITS == 8:
        tl.store(target, (packed.to(tl.float32) * scales).to(out.dtype.element_ty), mask=asked & (column < columns))
    else:
        minima = tl.load(minimum + at, mask=held, other=0.0).to(tl.float32)[:, :, None]
        low, high = (packed & 15).to(tl.float32) * scales + minima, (packed >> 4).to(tl.float32) * scales + minima
        tl.store(target, low.to(out.dtype.element_ty), mask=asked & (column < columns))
        tl.store(target + PART, high.to(out.dtype.element_ty), mask=asked & (column + PART < columns))


def low_bit_rows(weight: LowBitWeight, wanted: Tensor, dtype: torch.dtype) -> Tensor:
    """The rows `wanted` (int64 `[n]`, any order) of a weight, by the Triton kernel; `[n, columns]` in `dtype`: float32,
    float16 or bfloat16. A row that is not there is NaN.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    _check(weight, wanted, dtype)
    require("low_bit_rows", "low_bit_rows_torch", wanted.device)
    count, groups = len(wanted), weight.numbers.shape[1]
    out = torch.empty((count, weight.columns), dtype=dtype, device=wanted.device)
    minimum = weight.scale if weight.minimum is None else weight.minimum
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _rows[(ceil_div(count, _BLOCK_R), ceil_div(groups, _BLOCK_G))](
            weight.numbers, weight.scale, minimum, wanted, out, count, weight.rows, weight.columns, groups,
            BITS=weight.bits, TILE=TILE, GROUP=GROUP, BLOCK_R=_BLOCK_R, BLOCK_G=_BLOCK_G, num_warps=_WARPS,
        )  # fmt: skip
    return out


def low_bit_rows_torch(weight: LowBitWeight, wanted: Tensor, dtype: torch.dtype) -> Tensor:
    """What `low_bit_rows` computes, in plain torch, on any device; IndexError for a row that is not there."""
    _check(weight, wanted, dtype)
    return unpack_low_bit(weight, wanted).to(dtype)


def _check(weight: LowBitWeight, wanted: Tensor, dtype: torch.dtype) -> None:
    """Raise ValueError with one sentence about the first argument that does not fit."""
    expect_dims("wanted", wanted, "[n]")
    expect("wanted", wanted, tuple(wanted.shape), torch.int64, ("the weight", weight.numbers), Layout.DENSE)
    if dtype not in FLOATS:
        raise ValueError(f"dtype is {dtype}: expected float32, float16 or bfloat16")


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: both numbers of bits, in a 16-bit type and in float32."""
    for bits, kind in ((8, "bf16"), (4, "bf16"), (8, "fp32"), (4, "fp16")):
        yield CompileCase(
            f"low_bit_rows {kind} {bits} bits", _rows,
            {"numbers": "*i8:16" if bits == 8 else "*u8:16", "scale": "*fp16:16", "minimum": "*fp16:16"}
            | {"wanted": "*i64:16", "out": f"*{kind}:16", "count": "i32", "rows": "i32", "columns": "i32:16"}
            | {"groups": "i32"},
            {"BITS": bits, "TILE": TILE, "GROUP": GROUP, "BLOCK_R": _BLOCK_R, "BLOCK_G": _BLOCK_G}, _WARPS, 3,
        )  # fmt: skip
