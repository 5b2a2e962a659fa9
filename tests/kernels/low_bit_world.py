"""Random weights in 8 and 4 bits, and their values."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kernels.low_bit_weights import GROUP, TILE, LowBitWeight, empty_low_bit, pack_low_bit


def weight_of(rows: int, columns: int, bits: int, seed: int) -> tuple[LowBitWeight, Tensor]:
    """A random weight, packed in two lots, and its float32 values `[rows, columns]`. What fills it up to whole tiles
    and groups is random as well."""
    generator = torch.Generator().manual_seed(seed)
    whole, groups = -(-rows // TILE) * TILE, -(-columns // GROUP)
    low, high, kind = (0, 16, torch.uint8) if bits == 4 else (-127, 128, torch.int8)
    numbers = torch.randint(low, high, (whole, groups * GROUP), generator=generator).to(kind)
    scale = (torch.rand(whole, groups, generator=generator) * 0.1).half()
    minimum = (-torch.rand(whole, groups, generator=generator)).half() if bits == 4 else None
    weight = empty_low_bit(rows, columns, bits, torch.device("cpu"))
    cut = whole // TILE // 2 * TILE
    for first, end in ((0, cut), (cut, whole)):
        lot = None if minimum is None else minimum[first:end]
        if first < end:
            pack_low_bit(weight, first, numbers[first:end], scale[first:end], lot)
    values = numbers.float() * scale.float().repeat_interleave(GROUP, 1)
    values = values if minimum is None else values + minimum.float().repeat_interleave(GROUP, 1)
    return weight, values[:rows, :columns].contiguous()


def on(weight: LowBitWeight, device: str) -> LowBitWeight:
    """The same on a device."""
    minimum = None if weight.minimum is None else weight.minimum.to(device)
    return replace(weight, numbers=weight.numbers.to(device), scale=weight.scale.to(device), minimum=minimum)
