"""Weights held in 8 or 4 bits: quantised once at load, dequantised inside each product or just before it. A CPU and a
GPU hold the same numbers and scales, each as its kernel reads them.

Only weights: activations keep their type, no calibration text is needed (round to nearest, as GPTQ's and AWQ's papers
call the method that they start from).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.linear import size_of
from engine.model.weights.grouped import Grouped, Rows, grouped_int4, grouped_int8, stacked, values_of
from kernels.cpu.packed_linear import packed_linear, packed_rows, packed_rows_torch
from kernels.cpu.packed_weights import GROUP, TILE, PackedWeight, empty, group_bytes, pack, unpack
from kernels.cpu.ready import compile_in_background, compiled
from kernels.cpu.team import team
from kernels.low_bit_linear import MAX_TOKENS, low_bit_linear, low_bit_splits
from kernels.low_bit_rows import low_bit_rows, low_bit_rows_torch
from kernels.low_bit_weights import LowBitWeight, empty_low_bit, low_bit_bytes, pack_low_bit
from kernels.runtime import serves

_CPU_CHUNK, _GPU_CHUNK = 2**19, 2**25
"""Values dequantised at a time. 2 MB of float32 stay in a core's cache and below the size for which every allocation
asks the kernel for new pages: 128 tokens through 3072 x 576 take 17 ms so, 24 ms in one piece."""


@dataclass(frozen=True, slots=True)
class LowBitLinear:
    """A weight in 8 or 4 bits, in groups of `GROUP` columns, by the GPU's kernel for a few tokens and dequantised for
    more; also a `Table`. Without the kernel it runs on any device.

    `dtype` is the type that the model runs in; `splits` see `low_bit_splits`.
    """

    weight: LowBitWeight
    bias: Tensor | None
    dtype: torch.dtype
    splits: int

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return self.weight.bytes + size_of(self.bias)

    @property
    def parameters(self) -> int:
        """Numbers of weight and bias."""
        return self.weight.rows * self.weight.columns + (0 if self.bias is None else self.bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        """y `[tokens, rows]`."""
        if len(x) <= MAX_TOKENS and serves(x.device):
            return low_bit_linear(x, self.weight, self.bias, splits=self.splits)
        rows, device = self.weight.rows, x.device
        step = max(1, (_CPU_CHUNK if device.type == "cpu" else _GPU_CHUNK) // self.weight.columns)
        lots = (torch.arange(first, min(first + step, rows), device=device) for first in range(0, rows, step))
        return _biased(torch.cat([F.linear(x, self.rows(lot)) for lot in lots], dim=-1), self.bias)

    def rows(self, tokens: Tensor) -> Tensor:
        """The rows of `tokens`."""
        rows_of = low_bit_rows if serves(tokens.device) else low_bit_rows_torch
        return rows_of(self.weight, tokens, self.dtype)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight in 8 or 4 bits, in groups of `GROUP` columns, by the CPU's own kernel; also a `Table`."""

    weight: PackedWeight
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return size_of(self.weight.data, self.bias)

    @property
    def parameters(self) -> int:
        """Numbers of weight and bias."""
        return self.weight.rows * self.weight.columns + (0 if self.bias is None else self.bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        """y `[tokens, rows]`."""
        if compiled():
            return _biased(packed_linear(x, self.weight, team()), self.bias)
        step = max(TILE, _CPU_CHUNK // self.weight.columns // TILE * TILE)
        firsts = range(0, self.weight.rows, step)
        parts = [F.linear(x, unpack(self.weight, first, first + step)) for first in firsts]
        return _biased(torch.cat(parts, dim=-1), self.bias)

    def rows(self, tokens: Tensor) -> Tensor:
        """The rows of `tokens`, float32."""
        return packed_rows(self.weight, tokens) if compiled() else packed_rows_torch(self.weight, tokens)


def quantised(
    parts: Iterable[Rows],
    shape: tuple[int, int],
    bias: Tensor | None,
    bits: int,
    dtype: torch.dtype,
    device: torch.device,
) -> LowBitLinear | PackedLinear:
    """The rows of `parts`, `shape` in all, in 8 or 4 bits, by each group's largest or its smallest and largest value;
    for a model that runs in `dtype` on `device`, where the weight is put together. What a file holds in so many bits
    is taken as it is."""
    lots = _tiles(_grouped(parts, bits, device))
    if _packs(shape, dtype, device):
        compile_in_background()
        packed = empty(*shape, bits)
        for first, lot in lots:
            pack(packed, first, lot.numbers, lot.scale, lot.minimum)
        return PackedLinear(packed, bias)
    weight = empty_low_bit(*shape, bits, device)
    for first, lot in lots:
        pack_low_bit(weight, first, lot.numbers, lot.scale, lot.minimum)
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    return LowBitLinear(weight, None if bias is None else bias.to(device), dtype, low_bit_splits(*shape, processors))


def held_bytes(shape: tuple[int, int], bits: int, dtype: torch.dtype, device: torch.device) -> int:
    """What a weight in so many bits takes, without its bias."""
    rows, columns = shape
    if _packs(shape, dtype, device):
        return rows // TILE * (columns // GROUP) * group_bytes(bits)
    return low_bit_bytes(rows, columns, bits)


def _packs(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the CPU's kernel takes such a weight: whole tiles and groups, in a model that runs in float32."""
    on_cpu = device.type == "cpu" and not serves(device)  # under the interpreter a CPU stands for a GPU
    return on_cpu and dtype == torch.float32 and shape[0] % TILE == 0 and shape[1] % GROUP == 0


def _grouped(parts: Iterable[Rows], bits: int, device: torch.device) -> Iterator[Grouped]:
    """Whole groups on `device`, some rows at a time, so that what is computed on the way stays small. Bounds made anew
    from a file's values would be others than its own wherever a group does not reach both of its ends."""
    for part in parts:
        if isinstance(part, Grouped) and part.bits == bits:
            yield part.to(device)
            continue
        values = values_of(part)
        for some in torch.split(values, max(1, _CPU_CHUNK // values.shape[1])):
            whole = F.pad(some.to(device).float(), (0, -values.shape[1] % GROUP))
            yield grouped_int4(whole) if bits == 4 else grouped_int8(whole)


def _tiles(lots: Iterable[Grouped]) -> Iterator[tuple[int, Grouped]]:
    """Whole tiles, and the first row of each lot. What is left over of one goes before the next; zeros fill up the
    end."""
    left, first = None, 0
    for lot in lots:
        held = lot if left is None else stacked((left, lot))
        count = len(held.numbers)
        whole = count // TILE * TILE
        left = held.part(whole, count) if whole < count else None
        if whole:
            yield first, held.part(0, whole)
            first += whole
    if left is not None:
        yield first, left.filled(TILE)


def _biased(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + bias
