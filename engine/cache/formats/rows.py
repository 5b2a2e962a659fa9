"""What every quantiser of rows has in common: a row is one token's key or value of one head.

All of them keep one scale a row, in bfloat16 (float32's range: no key is too large for it), so that attention may
multiply the scale into a score or a weight after the product with the unscaled row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kernels.page_quantise import Packing

SCALE = torch.bfloat16
SCALE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """Quantised rows: `codes` uint8 `[..., row_bytes]`, `scales` bfloat16 `[...]`."""

    codes: Tensor
    scales: Tensor


class Quantiser(Protocol):
    """Turns rows `[..., head_dim]` into codes and one scale each, and back. `packing` is the kernels' name of it."""

    packing: Packing

    def magnitudes(self, head_dim: int) -> Tensor | None:
        """The four magnitudes of its codebook, ascending, float32; None where it has none."""

    def row_bytes(self, head_dim: int) -> int:
        """Bytes of one row's codes, its scale not counted."""

    def quantise(self, rows: Tensor) -> Rows:
        """Quantise finite rows `[..., head_dim]`; a row of zeros comes back as zeros."""

    def unscaled(self, codes: Tensor, out: Tensor) -> None:
        """Write the rows without their scales into `out` `[..., head_dim]`, of any floating type."""


def dequantise(quantiser: Quantiser, rows: Rows, out: Tensor) -> None:
    """Write the rows into `out` `[..., head_dim]`."""
    quantiser.unscaled(rows.codes, out)
    out.mul_(rows.scales.unsqueeze(-1))


def divisor(scales: Tensor) -> Tensor:
    """Scales `[...]` as float32 divisors `[..., 1]`, 1 in place of 0."""
    return scales.float().masked_fill(scales == 0, 1.0).unsqueeze(-1)
