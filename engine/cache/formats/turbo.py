"""Three bits a value after TurboQuant (arXiv 2504.19874): a rotated row has a known distribution, so one codebook,
computed once, serves every row of every model.

A randomly rotated unit vector of d values has coordinates of density (1 - x²)^((d - 3) / 2): close to a normal of
variance 1 / d. Lloyd and Max's codebook for that density has the least mean squared error of all of its size. The
paper's other variant spends one of the bits on the sign of a projected residual (QJL) to make inner products
unbiased; here the scale does that, as in EDEN (arXiv 2108.08842), and costs nothing.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from engine.cache.formats.rows import SCALE, Rows

_GRID = 1 << 16
_BITS = 3


@cache
def codebook(head_dim: int, bits: int) -> tuple[float, ...]:
    """Lloyd-Max levels, ascending, for one coordinate of a random unit vector of `head_dim` values.

    Each level is the mean of the density between the midpoints to its neighbours: iterated, on a fine grid, until no
    level moves by 1e-12 (Lloyd 1982, Max 1960). The density is log-concave, so that fixed point is the only one.
    """
    span = min(1.0, 8 / head_dim**0.5)
    x = ((torch.arange(_GRID, dtype=torch.float64) + 0.5) / _GRID * 2 - 1) * span
    density = (1 - x * x) ** ((head_dim - 3) / 2)
    zero = torch.zeros(1, dtype=torch.float64)
    mass, moment = torch.cat((zero, density.cumsum(0))), torch.cat((zero, (density * x).cumsum(0)))
    levels = torch.linspace(-2, 2, 2**bits, dtype=torch.float64) / head_dim**0.5
    moved = float("inf")
    while moved > 1e-12:
        inner = torch.searchsorted(x, (levels[1:] + levels[:-1]) / 2)
        edges = torch.cat((torch.tensor([0]), inner, torch.tensor([_GRID])))
        means = moment[edges].diff() / mass[edges].diff()
        moved = float((means - levels).abs().max())
        levels = means
    return tuple(levels.tolist())


class Turbo3:
    """Eight levels of `codebook`. Codes lie in two planes: the low two bits of four values a byte, then the high bit
    of eight values a byte; byte j of a plane holds values j, j + n, j + 2n, ... where n is the plane's length."""

    def row_bytes(self, head_dim: int) -> int:
        """Three eighths of a byte a value."""
        return head_dim * _BITS // 8

    def quantise(self, rows: Tensor) -> Rows:
        """Take the nearest level of the unit vector; the scale makes the row's product with itself exact."""
        rows, head_dim = rows.float(), rows.shape[-1]
        levels = torch.tensor(codebook(head_dim, _BITS), device=rows.device)
        # The square of a huge value is no float32: norms are taken of rows whose largest value is 1.
        largest = rows.abs().amax(-1, keepdim=True)
        shaped = rows / largest.masked_fill(largest == 0, 1.0)
        norm = shaped.norm(dim=-1, keepdim=True)
        unit = shaped / norm.masked_fill(norm == 0, 1.0)
        codes = torch.bucketize(unit.contiguous(), (levels[1:] + levels[:-1]) / 2)
        along = (unit * levels[codes]).sum(-1)
        scales = (norm * largest).squeeze(-1) / along.masked_fill(along == 0, 1.0)
        return Rows(_pack(codes.to(torch.uint8)), scales.to(SCALE))

    def unscaled(self, codes: Tensor, out: Tensor) -> None:
        """The levels."""
        head_dim = out.shape[-1]
        levels = torch.tensor(codebook(head_dim, _BITS), dtype=out.dtype, device=out.device)
        out.copy_(levels.index_select(0, _unpack(codes, head_dim).int().view(-1)).view(out.shape))


def _pack(codes: Tensor) -> Tensor:
    quarters, eighths = (codes & 3).chunk(4, dim=-1), (codes >> 2).chunk(8, dim=-1)
    low, high = quarters[0].clone(), eighths[0].clone()
    for place, quarter in enumerate(quarters[1:], start=1):
        low |= quarter << 2 * place
    for place, eighth in enumerate(eighths[1:], start=1):
        high |= eighth << place
    return torch.cat((low, high), dim=-1)


def _unpack(packed: Tensor, head_dim: int) -> Tensor:
    quarter, eighth = head_dim // 4, head_dim // 8
    low, high = packed[..., :quarter], packed[..., quarter:]
    codes = torch.empty((*packed.shape[:-1], head_dim), dtype=torch.uint8, device=packed.device)
    for place in range(4):
        codes[..., place * quarter : (place + 1) * quarter] = low >> 2 * place & 3
    for place in range(8):
        codes[..., place * eighth : (place + 1) * eighth] |= (high >> place & 1) << 2
    return codes
