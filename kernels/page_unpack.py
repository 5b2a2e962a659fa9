"""Rows of a packed page back in registers, without their scales: the codes that `page_quantise` writes.

A row comes back in parts, each of values whose codes lie in different bytes, so that no code moves from one thread to
another: int8 in one; int4 as its low and its high half; tq3 as every fourth value, from the first, second, third and
fourth on. A query that is cut up in the same way meets its keys part by part, and values are mixed part by part.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.page_quantise import Packing
from kernels.runtime import dot, jit, next_power_of_two, tl

PARTS = {Packing.INT8: 1, Packing.INT4: 2, Packing.TQ3: 4}


def part_block(packing: Packing, head_dim: int) -> int:
    """Columns of the tile of one part: at least the 16 that tensor cores need."""
    return max(16, next_power_of_two(head_dim // PARTS[packing]))


@jit
def part_dims(PART: tl.constexpr, HEAD_DIM: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr) -> tl.tuple:
    """Which values of a row the columns of a part hold, and which columns hold any; each `[BLOCK]`."""
    column = tl.arange(0, BLOCK)
    if BITS == 8:
        return column, column < HEAD_DIM
    elif BITS == 4:  # noqa: RET505 - Triton compiles only the branch that is taken when it is one of if and else
        return PART * (HEAD_DIM // 2) + column, column < HEAD_DIM // 2
    else:
        return 4 * column + PART, column < HEAD_DIM // 4


@jit
def _part(
    rows: tl.tensor, held: tl.tensor, PART: tl.constexpr, HEAD_DIM: tl.constexpr, BITS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    dim, exists = part_dims(PART, HEAD_DIM, BITS, BLOCK)
    return tl.load(rows[:, None] + dim[None, :], mask=held[:, None] & exists[None, :], other=0.0)


@jit
def load_parts(
    rows: tl.tensor, held: tl.tensor, HEAD_DIM: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr
) -> tl.tuple:
    """The parts of the rows that begin at the pointers `rows` `[n]`, zeros where not `held`."""
    first = _part(rows, held, 0, HEAD_DIM, BITS, BLOCK)
    if BITS == 8:
        return (first,)
    elif BITS == 4:  # noqa: RET505
        return first, _part(rows, held, 1, HEAD_DIM, BITS, BLOCK)
    else:
        second, third = _part(rows, held, 1, HEAD_DIM, BITS, BLOCK), _part(rows, held, 2, HEAD_DIM, BITS, BLOCK)
        return first, second, third, _part(rows, held, 3, HEAD_DIM, BITS, BLOCK)


@jit
def no_parts(ROWS: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr) -> tl.tuple:
    """Parts of zeros `[ROWS, BLOCK]`, float32."""
    zeros = tl.zeros([ROWS, BLOCK], tl.float32)
    if BITS == 8:
        return (zeros,)
    elif BITS == 4:  # noqa: RET505
        return zeros, zeros
    else:
        return zeros, zeros, zeros, zeros


@jit
def load_magnitudes(magnitudes: tl.tensor, BITS: tl.constexpr) -> tl.tuple:
    """The four magnitudes of a codebook; of other packings nothing is read."""
    if BITS == 3:
        return tl.load(magnitudes), tl.load(magnitudes + 1), tl.load(magnitudes + 2), tl.load(magnitudes + 3)
    else:  # noqa: RET505
        return (0.0, 0.0, 0.0, 0.0)


@jit
def _level(byte: tl.tensor, signs: tl.tensor, magnitudes: tl.tuple, PLACE: tl.constexpr) -> tl.tensor:
    """The levels of one of a byte's four values."""
    odd, large = (byte >> (2 * PLACE)) & 1 != 0, (byte >> (2 * PLACE)) & 2 != 0
    upper = tl.where(odd, magnitudes[3], magnitudes[2])
    size = tl.where(large, upper, tl.where(odd, magnitudes[1], magnitudes[0]))
    return tl.where((signs >> PLACE) & 1 != 0, size, -size)


@jit
def unpack_parts(
    codes: tl.tensor, read: tl.tensor, magnitudes: tl.tuple, HEAD_DIM: tl.constexpr, BITS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """The parts, float32, of the rows whose codes begin at the pointers `codes` `[n]`; any finite values where not
    `read`."""
    column = tl.arange(0, BLOCK)[None, :]
    rows, read = codes[:, None], read[:, None]
    if BITS == 8:
        byte = tl.load(rows + column, mask=read & (column < HEAD_DIM), other=0)
        return (byte.to(tl.int8, bitcast=True).to(tl.float32),)
    elif BITS == 4:  # noqa: RET505
        byte = tl.load(rows + column, mask=read & (column < HEAD_DIM // 2), other=0)
        return (byte & 15).to(tl.float32) - 7.5, (byte >> 4).to(tl.float32) - 7.5
    else:
        byte = tl.load(rows + column, mask=read & (column < HEAD_DIM // 4), other=0)
        pair = tl.arange(0, BLOCK // 2)[None, :]
        signs = tl.load(rows + HEAD_DIM // 4 + pair, mask=read & (pair < HEAD_DIM // 8), other=0)
        signs = tl.interleave(signs & 15, signs >> 4)  # of each byte of magnitudes its four
        low = _level(byte, signs, magnitudes, 0), _level(byte, signs, magnitudes, 1)
        return low[0], low[1], _level(byte, signs, magnitudes, 2), _level(byte, signs, magnitudes, 3)


@jit
def products(q: tl.tuple, k: tl.tuple, BITS: tl.constexpr) -> tl.tensor:
    """Products of queries with keys, both in parts, float32 `[queries, keys]`."""
    found = dot(q[0], tl.trans(k[0].to(q[0].dtype)))
    if BITS < 8:
        found += dot(q[1], tl.trans(k[1].to(q[0].dtype)))
    if BITS == 3:
        found += dot(q[2], tl.trans(k[2].to(q[0].dtype)))
        found += dot(q[3], tl.trans(k[3].to(q[0].dtype)))
    return found


@jit
def _mixed(acc: tl.tensor, shrink: tl.tensor, weights: tl.tensor, v: tl.tensor) -> tl.tensor:
    return acc * shrink[:, None] + dot(weights, v.to(weights.dtype))


@jit
def mix(acc: tl.tuple, shrink: tl.tensor, weights: tl.tensor, v: tl.tuple, BITS: tl.constexpr) -> tl.tuple:
    """`acc * shrink + weights @ v`, in parts."""
    first = _mixed(acc[0], shrink, weights, v[0])
    if BITS == 8:
        return (first,)
    elif BITS == 4:  # noqa: RET505
        return first, _mixed(acc[1], shrink, weights, v[1])
    else:
        second, third = _mixed(acc[1], shrink, weights, v[1]), _mixed(acc[2], shrink, weights, v[2])
        return first, second, third, _mixed(acc[3], shrink, weights, v[3])


def unpacked_torch(codes: Tensor, packing: Packing, magnitudes: Tensor | None) -> Tensor:
    """Rows without their scales, float32 `[..., head_dim]`, of codes uint8 `[..., row_bytes]`, in plain torch."""
    match packing:
        case Packing.INT8:
            return codes.view(torch.int8).float()
        case Packing.INT4:
            return torch.cat((codes & 15, codes >> 4), dim=-1).float() - 7.5
        case Packing.TQ3:
            assert magnitudes is not None
            head_dim = codes.shape[-1] * 8 // 3
            low, high = codes[..., : head_dim // 4, None], codes[..., head_dim // 4 :, None]
            nearest = (low >> torch.arange(0, 8, 2, device=codes.device) & 3).flatten(-2)
            signs = (high >> torch.arange(8, device=codes.device) & 1).flatten(-2)
            return magnitudes[nearest.long()] * (2.0 * signs - 1)
