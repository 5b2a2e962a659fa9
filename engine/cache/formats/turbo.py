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
from kernels.page_quantise import Packing

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
    """Eight levels of `codebook`, as a sign and one of four magnitudes. Codes lie in two planes: the magnitudes of four
    values a byte, then the signs of eight values a byte, the first value in the lowest bits."""

    packing = Packing.TQ3

    def magnitudes(self, head_dim: int) -> Tensor:
        """The upper half of the codebook: the lower is its mirror."""
        return torch.tensor(codebook(head_dim, _BITS)[2 ** (_BITS - 1) :])

    def row_bytes(self, head_dim: int) -> int:
        """Three eighths of a byte a value."""
        return head_dim * _BITS // 8

    def quantise(self, rows: Tensor) -> Rows:
        """Take the nearest level of the unit vector; the scale makes the row's product with itself exact."""
        rows, head_dim = rows.float(), rows.shape[-1]
        # The square of a huge value is no float32: norms are taken of rows whose largest value is 1.
        largest = rows.abs().amax(-1, keepdim=True)
        shaped = rows / largest.masked_fill(largest == 0, 1.0)
        norm = shaped.norm(dim=-1, keepdim=True)
        unit = (shaped / norm.masked_fill(norm == 0, 1.0)).contiguous()
        magnitudes = self.magnitudes(head_dim).to(rows.device)
        nearest = torch.bucketize(unit.abs(), (magnitudes[1:] + magnitudes[:-1]) / 2)
        along = (unit.abs() * magnitudes[nearest]).sum(-1)
        scales = (norm * largest).squeeze(-1) / along.masked_fill(along == 0, 1.0)
        planes = torch.cat((_bytes(nearest, bits=2), _bytes(unit > 0, bits=1)), dim=-1)
        return Rows(planes, scales.to(SCALE))

    def unscaled(self, codes: Tensor, out: Tensor) -> None:
        """The levels, looked up by the byte: six times as fast on a CPU as to unpack single bits."""
        quarter = out.shape[-1] // 4
        magnitudes, signs = _tables(out.shape[-1], out.dtype, out.device)
        low, high = codes[..., :quarter].reshape(-1).int(), codes[..., quarter:].reshape(-1).int()
        torch.mul(magnitudes.index_select(0, low).view(out.shape), signs.index_select(0, high).view(out.shape), out=out)


def _bytes(values: Tensor, bits: int) -> Tensor:
    """Pack values of `bits` bits along the last dimension."""
    places = torch.arange(0, 8, bits, dtype=torch.uint8, device=values.device)
    grouped = values.to(torch.uint8).reshape(*values.shape[:-1], -1, 8 // bits)
    return (grouped << places).sum(-1, dtype=torch.uint8)


@cache
def _tables(head_dim: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """By byte: the four magnitudes `[256, 4]` and the eight signs `[256, 8]` that it stands for."""
    byte = torch.arange(256)[:, None]
    magnitudes = Turbo3().magnitudes(head_dim)[byte >> torch.arange(0, 8, 2) & 3]
    signs = (byte >> torch.arange(8) & 1) * 2 - 1
    return magnitudes.to(device, dtype), signs.to(device, dtype)
