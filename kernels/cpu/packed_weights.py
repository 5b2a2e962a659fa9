"""A weight in 4 or 8 bits, in the order in which `packed_linear` reads it.

Groups of 32 columns of a row share a scale, in 4 bits also a minimum, as in GGUF's Q4_1 and Q8_0, whose numbers it
holds as they are: w = number * scale + minimum, both float16. A tile is 16 rows; all of a tile that belongs to one
group lies together (320 bytes in 4 bits, 544 in 8), and the groups of a tile one after another, so that a product
reads memory from front to back. The lanes of a vector are rows: nothing has to be summed across lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TILE, GROUP = 16, 32
_HALF = 8
"""Rows of one vector of 32-bit sums."""


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """`data` uint8 `[rows / 16, columns / 32, bytes]`: the numbers, then 16 scales, in 4 bits then 16 minima."""

    data: Tensor
    bits: int

    @property
    def rows(self) -> int:
        """Rows of the weight."""
        return self.data.shape[0] * TILE

    @property
    def columns(self) -> int:
        """Columns of the weight."""
        return self.data.shape[1] * GROUP


def group_bytes(bits: int) -> int:
    """Bytes of a tile's share of one group."""
    return TILE * GROUP * bits // 8 + TILE * (4 if bits == 4 else 2)


def empty(rows: int, columns: int, bits: int) -> PackedWeight:
    """Room for a weight. Raises ValueError for one that is not whole tiles and groups."""
    if bits not in (4, 8) or rows % TILE or columns % GROUP:
        raise ValueError(f"cannot pack {rows} x {columns} in {bits} bits: {TILE} rows x {GROUP} columns, 4 or 8 bits")
    return PackedWeight(torch.empty(rows // TILE, columns // GROUP, group_bytes(bits), dtype=torch.uint8), bits)


def pack(weight: PackedWeight, first: int, numbers: Tensor, scale: Tensor, minimum: Tensor | None) -> None:
    """Write whole tiles from row `first` on: `numbers` `[rows, columns]`, uint8 up to 15 or int8; `scale`, `minimum`
    float16 `[rows, groups]`."""
    rows = numbers.shape[0]
    tiles, groups = rows // TILE, weight.data.shape[1]
    out = weight.data[first // TILE : first // TILE + tiles]
    size = TILE * GROUP * weight.bits // 8
    if weight.bits == 8:
        # Vectors of 8 rows x 2 columns, a pair of columns after the other.
        pairs = numbers.view(tiles, 2, _HALF, groups, 16, 2).permute(0, 3, 4, 1, 2, 5)
        out[:, :, :size] = pairs.reshape(tiles, groups, size).view(torch.uint8)
    else:
        # Words of 16 bits: a row's columns c, c + 2, c + 4 and c + 6, from the lowest 4 bits up; so again vectors of
        # 8 rows x 2 columns.
        some = numbers.view(tiles, 2, _HALF, groups, 4, 4, 2).permute(0, 3, 4, 1, 2, 6, 5)
        low, high = (some[..., i] | some[..., i + 1] << 4 for i in (0, 2))
        out[:, :, :size] = torch.stack((low, high), dim=-1).reshape(tiles, groups, size)
    for index, values in enumerate((scale,) if minimum is None else (scale, minimum)):
        bounds = values.view(tiles, TILE, groups).transpose(1, 2).contiguous()
        out[:, :, size + 2 * TILE * index : size + 2 * TILE * (index + 1)] = bounds.view(torch.uint8)


def unpack(weight: PackedWeight, first: int = 0, end: int | None = None) -> Tensor:
    """The float32 values of rows [first, end), whole tiles: `[rows, columns]`."""
    data = weight.data[first // TILE : None if end is None else end // TILE]
    tiles, groups = data.shape[:2]
    size = TILE * GROUP * weight.bits // 8
    if weight.bits == 8:
        numbers = data[:, :, :size].view(torch.int8).reshape(tiles, groups, 16, 2, _HALF, 2).permute(0, 3, 4, 1, 2, 5)
    else:
        words = data[:, :, :size].reshape(tiles, groups, 4, 2, _HALF, 2, 2)
        parts = torch.stack((words & 15, words >> 4), dim=-1).flatten(-2)  # the 4 columns of a word
        numbers = parts.permute(0, 3, 4, 1, 2, 6, 5)
    values = numbers.reshape(tiles, TILE, groups, GROUP).float()
    kinds = 2 if weight.bits == 4 else 1
    bounds = data[:, :, size:].contiguous().view(torch.float16).view(tiles, groups, kinds, TILE).permute(2, 0, 3, 1)
    values *= bounds[0, ..., None].float()
    if weight.bits == 4:
        values += bounds[1, ..., None].float()
    return values.view(tiles * TILE, groups * GROUP)
