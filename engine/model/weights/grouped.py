"""Rows of a weight as small numbers in groups of 32 columns, as Q4_1 and Q8_0 files hold them and the kernels read
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.cpu.packed_weights import GROUP

_SMALLEST_HALF = 6e-8
"""The scale of zeros: float16 has none below."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """w = number * scale + minimum. `numbers` `[rows, columns]`, uint8 up to 15 or int8; `scale`, `minimum` float16
    `[rows, groups]`, in 8 bits no minimum."""

    numbers: Tensor
    scale: Tensor
    minimum: Tensor | None

    @property
    def bits(self) -> int:
        """Of a number."""
        return 8 if self.minimum is None else 4

    def values(self) -> Tensor:
        """The weights, float32 `[rows, columns]`."""
        groups = self.numbers.view(len(self.numbers), -1, GROUP).float().mul_(self.scale[..., None].float())
        if self.minimum is not None:
            groups.add_(self.minimum[..., None].float())
        return groups.view(self.numbers.shape)

    def to(self, device: torch.device) -> Grouped:
        """The same on `device`."""
        minimum = None if self.minimum is None else self.minimum.to(device)
        return Grouped(self.numbers.to(device), self.scale.to(device), minimum)

    def filled(self, rows: int) -> Grouped:
        """So many rows, of which the last are zeros."""
        more = (0, 0, 0, rows - len(self.numbers))
        minimum = None if self.minimum is None else F.pad(self.minimum, more)
        return Grouped(F.pad(self.numbers, more), F.pad(self.scale, more), minimum)

    def part(self, first: int, end: int) -> Grouped:
        """Rows [first, end)."""
        minimum = None if self.minimum is None else self.minimum[first:end]
        return Grouped(self.numbers[first:end], self.scale[first:end], minimum)


Rows = Tensor | Grouped
"""Some rows of a matrix `[rows, columns]`: their values, or what the file holds of them."""


def values_of(rows: Rows) -> Tensor:
    """The values `[rows, columns]`, in the type that they came in."""
    return rows.values() if isinstance(rows, Grouped) else rows


def stacked(parts: Sequence[Grouped]) -> Grouped:
    """All rows of parts of the same bits."""
    minima = [part.minimum for part in parts if part.minimum is not None]
    numbers, scale = torch.cat([part.numbers for part in parts]), torch.cat([part.scale for part in parts])
    return Grouped(numbers, scale, torch.cat(minima) if minima else None)


def grouped_int8(rows: Tensor) -> Grouped:
    """Float32 `rows` rounded to 255 numbers, by each group's largest, as Q8_0 does."""
    groups = rows.view(rows.shape[0], -1, GROUP)
    scale = (groups.abs().amax(-1) / 127).clamp(min=_SMALLEST_HALF).half()
    numbers = (groups / scale[..., None].float()).round_().clamp_(-127, 127)
    return Grouped(numbers.to(torch.int8).view(rows.shape), scale, None)


def grouped_int4(rows: Tensor) -> Grouped:
    """Float32 `rows` rounded to 16 numbers, from each group's smallest to its largest, as Q4_1 does."""
    groups = rows.view(rows.shape[0], -1, GROUP)
    low, high = groups.aminmax(dim=-1)
    scale, minimum = ((high - low) / 15).clamp(min=_SMALLEST_HALF).half(), low.half()
    numbers = ((groups - minimum[..., None].float()) / scale[..., None].float()).round_().clamp_(0, 15)
    return Grouped(numbers.to(torch.uint8).view(rows.shape), scale, minimum)
