"""Quantise the rows of a full page, once: int8, int4 and tq3. They come rotated, as the page being written holds them.

A row is one token's key or value of one head; it becomes codes and one bfloat16 scale. Products of rotated rows are
those of the rows, and a rotation spreads a row's few large values over all of them (QuaRot, arXiv 2404.00456).

- int8: codes -127..127, a byte each; the scale is largest / 127.
- int4: sixteen levels at -7.5 .. 7.5; byte j holds value j in its low and value j + head_dim / 2 in its high half. Of
  seven scales, that clip up to 30 % of the largest value, the one of least squared error.
- tq3: TurboQuant (arXiv 2504.19874): the nearest level of a codebook for coordinates of a random unit vector, as one of
  four magnitudes and a sign; four magnitudes a byte, then eight signs a byte, the first value in the lowest bits. The
  scale makes the row's product with itself exact (EDEN, arXiv 2108.08842).

The same codes come out wherever the order of a sum does not decide between two: divisions and roots are the exactly
rounded ones, and rounding goes to even, as in torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from kernels.arguments import FLOATS, Layout, expect, expect_dims, expect_float
from kernels.runtime import CompileCase, ceil_div, jit, next_power_of_two, require, tl

MAX_HEAD_DIM = 256
INT4_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Shares of a row's largest value that a 4-bit scale is tried for."""


class Packing(IntEnum):
    """How a row is packed, by bits a value."""

    INT8 = 8
    INT4 = 4
    TQ3 = 3

    def row_bytes(self, head_dim: int) -> int:
        """Bytes of one row's codes, its scale not counted."""
        return head_dim * self.value // 8


@jit
def _to_bfloat16(x: tl.tensor) -> tl.tensor:
    """The nearest value that bfloat16 has, ties to even, as float32: the same under the interpreter, which cuts off."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)


@jit
def _divided(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """x / y of each row, rounded exactly; by 1 where y is 0."""
    x, y = tl.broadcast(x, tl.where(y == 0.0, 1.0, y)[:, None])
    return tl.div_rn(x, y)


@jit
def _int8(x: tl.tensor, largest: tl.tensor) -> tl.tuple:
    """Codes as int32 and scales of rows `[rows, values]`."""
    scale = _to_bfloat16(tl.div_rn(largest, tl.full(largest.shape, 127.0, tl.float32)))
    # Adding and taking away 1.5 * 2**23 rounds to the nearest integer, ties to even.
    code = (_divided(x, scale) + 12582912.0) - 12582912.0
    return tl.minimum(tl.maximum(code, -127.0), 127.0).to(tl.int32), scale


@jit
def _int4(x: tl.tensor, largest: tl.tensor, held: tl.tensor, shares: tl.tensor, SHARES: tl.constexpr) -> tl.tuple:
    """Codes 0..15 as int32 and scales of rows `[rows, values]`."""
    best, best_scale = tl.zeros(x.shape, tl.float32), tl.zeros(largest.shape, tl.float32)
    least = tl.full(largest.shape, float("inf"), tl.float32)
    for index in range(SHARES):
        scale = _to_bfloat16(largest * tl.load(shares + index))
        scaled = _divided(x, scale)
        levels = tl.minimum(tl.maximum(tl.floor(scaled) + 0.5, -7.5), 7.5)
        off = tl.where(held, levels - scaled, 0.0)
        error = tl.sum(off * off, 1) * tl.load(shares + SHARES + index)
        better = error < least
        least = tl.where(better, error, least)
        best_scale = tl.where(better, scale, best_scale)
        best = tl.where(better[:, None], levels, best)
    return (best + 7.5).to(tl.int32), best_scale


@jit
def _tq3(x: tl.tensor, largest: tl.tensor, magnitudes: tl.tensor) -> tl.tuple:
    """Which of four magnitudes, as int32, whether positive, and scales of rows `[rows, values]`."""
    shaped = _divided(x, largest)
    norm = tl.sqrt_rn(tl.sum(shaped * shaped, 1))
    unit = _divided(shaped, norm)
    size = tl.abs(unit)
    nearest = tl.zeros(x.shape, tl.int32)
    level = tl.zeros(x.shape, tl.float32) + tl.load(magnitudes)
    for index in range(3):
        lower, upper = tl.load(magnitudes + index), tl.load(magnitudes + index + 1)
        beyond = size > (lower + upper) / 2
        nearest += beyond.to(tl.int32)
        level = tl.where(beyond, upper, level)
    along = tl.sum(size * level, 1)
    along = tl.where(along == 0.0, 1.0, along)
    return nearest, (unit > 0.0).to(tl.int32), _to_bfloat16(tl.div_rn(norm * largest, along))


@jit
def _joined(codes: tl.tensor, ROWS: tl.constexpr, BYTES: tl.constexpr, BITS: tl.constexpr) -> tl.tensor:
    """Bytes `[ROWS, BYTES]` of codes of BITS bits, the first value in the lowest."""
    place = tl.arange(0, 8 // BITS)[None, None, :] * BITS
    return tl.sum(tl.reshape(codes, [ROWS, BYTES, 8 // BITS]) << place, 2)


@jit
def _quantise(
    rows: tl.tensor, table: tl.tensor, slots: tl.tensor, codes: tl.tensor, scales: tl.tensor,
    tokens: tl.tensor, row_strides: tl.tuple, code_strides: tl.tuple, scale_stride: tl.tensor, HEAD_DIM: tl.constexpr,
    BITS: tl.constexpr, SHARES: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
) -> None:  # fmt: skip
    """BLOCK_R tokens of one head."""
    head = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.arange(0, BLOCK_D)
    if BITS == 4:  # neighbours in the tile share a byte: j, j + half, j + 1, ...
        dim = column // 2 + column % 2 * (HEAD_DIM // 2)
        held_dim = column < HEAD_DIM
    else:
        dim, held_dim = column, column < HEAD_DIM
    here = token < tokens
    held = here[:, None] & held_dim[None, :]
    source = rows + head * row_strides[0] + token.to(tl.int64)[:, None] * row_strides[1]
    x = tl.load(source + dim[None, :], mask=held, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(x), 1)
    slot = tl.load(slots + token, mask=here, other=0)
    target = codes + head * code_strides[0] + slot[:, None] * code_strides[1]
    if BITS == 8:
        code, scale = _int8(x, largest)
        tl.store(target + column[None, :], code.to(tl.uint8), mask=held)
    elif BITS == 4:
        code, scale = _int4(x, largest, held, table, SHARES)
        byte = tl.arange(0, BLOCK_D // 2)[None, :]
        joined = _joined(code, BLOCK_R, BLOCK_D // 2, 4)
        tl.store(target + byte, joined.to(tl.uint8), mask=here[:, None] & (byte < HEAD_DIM // 2))
    else:
        nearest, sign, scale = _tq3(x, largest, table)
        byte = tl.arange(0, BLOCK_D // 4)[None, :]
        joined = _joined(nearest, BLOCK_R, BLOCK_D // 4, 2)
        tl.store(target + byte, joined.to(tl.uint8), mask=here[:, None] & (byte < HEAD_DIM // 4))
        byte = tl.arange(0, BLOCK_D // 8)[None, :]
        joined = _joined(sign, BLOCK_R, BLOCK_D // 8, 1)
        target += HEAD_DIM // 4
        tl.store(target + byte, joined.to(tl.uint8), mask=here[:, None] & (byte < HEAD_DIM // 8))
    tl.store(scales + head * scale_stride + slot, scale.to(tl.bfloat16), mask=here)


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Compile-time sizes. With 16 values a thread, not 8, the search for an
    int4 scale spills on sm_90 (128 values) and sm_120 (256)."""

    block_r: int
    block_d: int
    num_warps: int

    @classmethod
    def of(cls, head_dim: int) -> _Tiling:
        block_d = max(16, next_power_of_two(head_dim))
        return cls(16, block_d, max(1, min(16, block_d // 16)))


def quantise_rows(
    rows: Tensor, slots: Tensor, codes: Tensor, scales: Tensor, packing: Packing, *,
    magnitudes: Tensor | None = None,
) -> None:  # fmt: skip
    """Quantise rows into their slots, by the Triton kernel.

    - `rows`: `[kv_heads, tokens, head_dim]`, finite, float32, float16 or bfloat16, any strides with the last dimension
      contiguous; head_dim a multiple of 8, at most MAX_HEAD_DIM.
    - `slots`: int64 `[tokens]`, contiguous, each once: where the rows go.
    - `codes` uint8 `[kv_heads, slots, row_bytes]` and `scales` bfloat16 `[kv_heads, slots]`, rows contiguous.
    - `magnitudes`: float32 `[4]`, ascending, of the codebook; for `Packing.TQ3` and for it alone.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    _check(rows, slots, codes, scales, packing, magnitudes)
    require("quantise_rows", "quantise_rows_torch", rows.device)
    heads, tokens, head_dim = rows.shape
    tiling = _Tiling.of(head_dim)
    # Of each share, the factor that makes a scale, and its square, which weighs the squared error in steps.
    shares = [share / 7.5 for share in INT4_SHARES] + [share * share for share in INT4_SHARES]
    table = torch.tensor(shares, device=rows.device) if magnitudes is None else magnitudes
    with torch.cuda.device_of(rows):  # type: ignore[no-untyped-call]
        _quantise[(ceil_div(tokens, tiling.block_r), heads)](
            rows, table, slots, codes, scales, tokens, rows.stride()[:2],
            codes.stride()[:2], scales.stride(0), HEAD_DIM=head_dim, BITS=packing.value, SHARES=len(INT4_SHARES),
            BLOCK_R=tiling.block_r, BLOCK_D=tiling.block_d,
            num_warps=tiling.num_warps,
        )  # fmt: skip


def quantise_rows_torch(
    rows: Tensor, slots: Tensor, codes: Tensor, scales: Tensor, packing: Packing, *,
    magnitudes: Tensor | None = None,
) -> None:  # fmt: skip
    """What `quantise_rows` does, in plain torch, on any device and for any head size that is a multiple of 8."""
    _check(rows, slots, codes, scales, packing, magnitudes)
    wide = rows.float()
    largest = wide.abs().amax(-1)
    match packing:
        case Packing.INT8:
            scale = (largest / 127).to(torch.bfloat16)
            packed = torch.round(wide / _divisor(scale)).clamp(-127, 127).to(torch.int8).view(torch.uint8)
        case Packing.INT4:
            packed, scale = _int4_torch(wide, largest)
        case Packing.TQ3:
            assert magnitudes is not None
            packed, scale = _tq3_torch(wide, largest, magnitudes)
    codes[:, slots] = packed
    scales[:, slots] = scale


def _int4_torch(rows: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    errors, levels, scales = [], [], []
    for share in INT4_SHARES:
        scales.append((largest * (share / 7.5)).to(torch.bfloat16))
        scaled = rows / _divisor(scales[-1])
        levels.append((scaled.floor() + 0.5).clamp(-7.5, 7.5))
        errors.append((levels[-1] - scaled).square().sum(-1) * (share * share))
    best = torch.stack(errors).argmin(0)[None]
    low, high = (torch.stack(levels).take_along_dim(best[..., None], 0)[0] + 7.5).to(torch.uint8).chunk(2, dim=-1)
    return low | high << 4, torch.stack(scales).take_along_dim(best, 0)[0]


def _tq3_torch(rows: Tensor, largest: Tensor, magnitudes: Tensor) -> tuple[Tensor, Tensor]:
    shaped = rows / _divisor(largest)
    norm = shaped.norm(dim=-1)
    unit = shaped / _divisor(norm)
    nearest = torch.bucketize(unit.abs().contiguous(), (magnitudes[1:] + magnitudes[:-1]) / 2)
    along = (unit.abs() * magnitudes[nearest]).sum(-1)
    planes = [_joined_torch(nearest, 2), _joined_torch(unit > 0, 1)]
    return torch.cat(planes, dim=-1), (norm * largest / _divisor(along)[..., 0]).to(torch.bfloat16)


def _joined_torch(codes: Tensor, bits: int) -> Tensor:
    place = torch.arange(0, 8, bits, device=codes.device)
    return (codes.long().view(*codes.shape[:-1], -1, 8 // bits) << place).sum(-1).to(torch.uint8)


def _divisor(scales: Tensor) -> Tensor:
    return scales.float().masked_fill(scales == 0, 1.0).unsqueeze(-1)


def _check(
    rows: Tensor, slots: Tensor, codes: Tensor, scales: Tensor, packing: Packing,
    magnitudes: Tensor | None,
) -> None:  # fmt: skip
    """Raise ValueError with one sentence about the first argument that does not fit."""
    expect_dims("rows", rows, "[kv_heads, tokens, head_dim]")
    expect_dims("codes", codes, "[kv_heads, slots, row_bytes]")
    expect_float("rows", rows)
    heads, tokens, head_dim = rows.shape
    if head_dim % 8 or head_dim > MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {head_dim}: expected a multiple of 8, at most {MAX_HEAD_DIM}")
    beside = ("rows", rows)
    expect("rows", rows, tuple(rows.shape), rows.dtype, beside, Layout.ROWS)
    expect("slots", slots, (tokens,), torch.int64, beside, Layout.DENSE)
    expect("codes", codes, (heads, codes.shape[1], packing.row_bytes(head_dim)), torch.uint8, beside, Layout.ROWS)
    expect("scales", scales, (heads, codes.shape[1]), torch.bfloat16, beside, Layout.ROWS)
    if (magnitudes is not None) != (packing is Packing.TQ3):
        raise ValueError(f"magnitudes belong to TQ3 and to it alone; the packing is {packing.name}")
    if magnitudes is not None:
        expect("magnitudes", magnitudes, (4,), torch.float32, beside, Layout.DENSE)


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds."""
    for dtype, head_dim, packing in (
        (torch.bfloat16, 64, Packing.INT8), (torch.bfloat16, 128, Packing.INT4),
        (torch.bfloat16, 80, Packing.TQ3), (torch.bfloat16, 256, Packing.TQ3),
        (torch.float16, 128, Packing.INT8), (torch.float32, 256, Packing.INT4),
    ):  # fmt: skip
        tiling = _Tiling.of(head_dim)
        yield CompileCase(
            f"quantise {packing.name.lower()} {FLOATS[dtype]} d{head_dim}", _quantise,
            {"rows": f"*{FLOATS[dtype]}:16", "table": "*fp32:16", "slots": "*i64:16", "codes": "*u8:16"}
            | {"scales": "*bf16:16", "tokens": "i32"}
            | dict.fromkeys(("row_strides", "code_strides"), ("i32:16", "i32:16")) | {"scale_stride": "i32"},
            {"HEAD_DIM": head_dim, "BITS": packing.value, "SHARES": len(INT4_SHARES),
             "BLOCK_R": tiling.block_r, "BLOCK_D": tiling.block_d},
            tiling.num_warps, 3,
        )  # fmt: skip
