"""How a weight in 8 or 4 bits lies in a GPU's memory.

`GROUP` columns of a row share a scale, in 4 bits also a minimum, as in GGUF's Q8_0 and Q4_1, whose numbers it holds as
they are: w = number * scale + minimum. A tile is `TILE` rows: what belongs to one group of a tile lies together, and
the groups of a tile one after another, so that a program that goes through the groups reads whole lines of memory
(512 bytes in 8 bits, 256 in 4), where rows as they are would give it 32 or 16 bytes of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TILE, GROUP = 16, 32


@dataclass(frozen=True, slots=True)
class LowBitWeight:
    """A weight `[rows, columns]`, both filled up with zeros to whole tiles and groups.

    - `numbers`: int8 `[tiles, groups, TILE, GROUP]`, or in 4 bits uint8 `[tiles, groups, TILE, GROUP / 2]`: byte j of a
      row holds column j of the group in its low half and column j + GROUP / 2 in its high half.
    - `scale`, and in 4 bits `minimum`: float16 `[tiles, groups, TILE]`.
    """

    numbers: Tensor
    scale: Tensor
    minimum: Tensor | None
    rows: int
    columns: int

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return 8 if self.minimum is None else 4

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return low_bit_bytes(self.rows, self.columns, self.bits)


def low_bit_bytes(rows: int, columns: int, bits: int) -> int:
    """What a weight of this size takes."""
    group_bytes = GROUP + 2 if bits == 8 else GROUP // 2 + 4
    return -(-rows // TILE) * TILE * -(-columns // GROUP) * group_bytes


def empty_low_bit(rows: int, columns: int, bits: int, device: torch.device) -> LowBitWeight:
    """Room for a weight. Raises ValueError for another number of bits than 4 or 8, or a size of 0."""
    if bits not in (4, 8) or rows < 1 or columns < 1:
        raise ValueError(f"cannot hold {rows} x {columns} in {bits} bits: expected at least 1 x 1, in 4 or 8 bits")
    shape = (-(-rows // TILE), -(-columns // GROUP), TILE)
    kind, size = (torch.int8, GROUP) if bits == 8 else (torch.uint8, GROUP // 2)
    numbers = torch.empty(*shape, size, dtype=kind, device=device)
    scale = torch.empty(shape, dtype=torch.float16, device=device)
    return LowBitWeight(numbers, scale, None if bits == 8 else torch.empty_like(scale), rows, columns)


def pack_low_bit(weight: LowBitWeight, first: int, numbers: Tensor, scale: Tensor, minimum: Tensor | None) -> None:
    """Write whole tiles from row `first` on: `numbers` `[rows, groups * GROUP]`, int8, or uint8 up to 15; `scale` and
    in 4 bits `minimum` `[rows, groups]`."""
    tiles, groups = numbers.shape[0] // TILE, weight.numbers.shape[1]
    at = slice(first // TILE, first // TILE + tiles)
    grouped = numbers.view(tiles, TILE, groups, GROUP).transpose(1, 2)
    if weight.minimum is None or minimum is None:
        weight.numbers[at] = grouped
    else:
        weight.numbers[at] = grouped[..., : GROUP // 2] | grouped[..., GROUP // 2 :] << 4
        weight.minimum[at] = minimum.view(tiles, TILE, groups).transpose(1, 2)
    weight.scale[at] = scale.view(tiles, TILE, groups).transpose(1, 2)


def unpack_low_bit(weight: LowBitWeight, rows: Tensor) -> Tensor:
    """The float32 values of some `rows` `[n]`: `[n, columns]`."""
    tile, row = rows // TILE, rows % TILE
    numbers = weight.numbers[tile, :, row]
    if weight.minimum is not None:
        numbers = torch.cat((numbers & 15, numbers >> 4), dim=-1)
    values = numbers.float() * weight.scale[tile, :, row, None].float()
    if weight.minimum is not None:
        values += weight.minimum[tile, :, row, None].float()
    return values.flatten(1)[:, : weight.columns]
