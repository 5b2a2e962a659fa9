"""Weights held in 8 or 4 bits: quantised once at load, dequantised inside each product or just before it.

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
from kernels.cpu.packed_linear import packed_linear, packed_rows, packed_rows_torch
from kernels.cpu.packed_weights import GROUP, TILE, PackedWeight, empty, group_bytes, pack, unpack
from kernels.cpu.ready import compile_in_background, compiled
from kernels.cpu.team import team

_CPU_CHUNK, _GPU_CHUNK = 2**19, 2**25
"""Values dequantised at a time. 2 MB of float32 stay in a core's cache and below the size for which every allocation
asks the kernel for new pages: 128 tokens through 3072 x 576 take 17 ms so, 24 ms in one piece."""
_SMALLEST, _SMALLEST_HALF = 1e-30, 6e-8
"""The scale of zeros; float16 has none below the second."""


@dataclass(frozen=True, slots=True)
class Int8Linear:
    """A weight `[rows, columns]` as int8, with a bfloat16 scale a row `[rows]`; also a `Table`. Runs on any device.

    `dtype` is the type that the model runs in.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor | None
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return size_of(self.weight, self.scale, self.bias)

    @property
    def parameters(self) -> int:
        """Numbers of weight and bias."""
        return self.weight.numel() + (0 if self.bias is None else self.bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        """y `[tokens, rows]`."""
        parts = [F.linear(x, part.to(x.dtype)) for part in torch.split(self.weight, _chunk(self.weight))]
        return _biased(torch.cat(parts, dim=-1) * self.scale.to(x.dtype), self.bias)

    def rows(self, tokens: Tensor) -> Tensor:
        """The rows of `tokens`."""
        return self.weight[tokens].to(self.dtype) * self.scale[tokens, None].to(self.dtype)


@dataclass(frozen=True, slots=True)
class Int4Linear:
    """A weight as 4-bit numbers u, two a byte `[rows, columns / 2]`, with `scale` and `zero` `[rows, groups]` in
    bfloat16: w = (u - 8) * scale + zero. Runs on any device."""

    weight: Tensor
    scale: Tensor
    zero: Tensor
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return size_of(self.weight, self.scale, self.zero, self.bias)

    @property
    def parameters(self) -> int:
        """Numbers of weight and bias."""
        return 2 * self.weight.numel() + (0 if self.bias is None else self.bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        """y `[tokens, rows]`."""
        size = _chunk(self.weight) // 2 or 1
        held = (torch.split(t, size) for t in (self.weight, self.scale, self.zero))
        parts = [F.linear(x, _from_nibbles(w, s, z, x.dtype)) for w, s, z in zip(*held, strict=True)]
        return _biased(torch.cat(parts, dim=-1), self.bias)


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


def int8(
    parts: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None, dtype: torch.dtype, device: torch.device
) -> Int8Linear | PackedLinear:
    """Quantise the rows of `parts`, `shape` in all: by each row's largest value, on a CPU by each group's."""
    if _packs(shape, dtype, device):
        return _packed(parts, shape, bias, 8)
    weight, scale = torch.empty(shape, dtype=torch.int8), torch.empty(shape[0], dtype=torch.bfloat16)
    for rows, some in _rows(parts):
        weight[rows], scale[rows] = _to_int8(some)
    return Int8Linear(weight.to(device), scale.to(device), None if bias is None else bias.to(device), dtype)


def int4(
    parts: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None, dtype: torch.dtype, device: torch.device
) -> Int4Linear | PackedLinear:
    """Quantise the rows of `parts`, `shape` in all, in groups of `GROUP` columns, each between its smallest and largest
    value. `shape` must be whole groups."""
    if _packs(shape, dtype, device):
        return _packed(parts, shape, bias, 4)
    numbers = torch.empty(shape, dtype=torch.uint8)
    scale, zero = torch.empty(2, shape[0], shape[1] // GROUP, dtype=torch.bfloat16)
    for rows, some in _rows(parts):
        numbers[rows], scale[rows], zero[rows] = _to_int4(some)
    bias = None if bias is None else bias.to(device)
    nibbles = numbers[:, 0::2] | (numbers[:, 1::2] << 4)
    return Int4Linear(nibbles.to(device), scale.to(device), zero.to(device), bias)


def held_bytes(shape: tuple[int, int], bits: int, dtype: torch.dtype, device: torch.device) -> int:
    """What a weight in so many bits takes, without its bias."""
    rows, columns = shape
    if _packs(shape, dtype, device):
        return rows // TILE * (columns // GROUP) * group_bytes(bits)
    return rows * (columns + 2) if bits == 8 else rows * (columns // 2 + 4 * (columns // GROUP))


def _packs(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the CPU's kernel takes such a weight: whole tiles and groups, in a model that runs in float32."""
    return device.type == "cpu" and dtype == torch.float32 and shape[0] % TILE == 0 and shape[1] % GROUP == 0


def _packed(parts: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None, bits: int) -> PackedLinear:
    compile_in_background()
    weight = empty(*shape, bits)
    for rows, some in _tiles(parts, shape):
        pack(weight, rows, *(grouped_int4(some) if bits == 4 else grouped_int8(some)))
    return PackedLinear(weight, bias)


def _tiles(parts: Iterable[Tensor], shape: tuple[int, int]) -> Iterator[tuple[int, Tensor]]:
    """Whole tiles in float32, and the first row of each lot: what is left over of one lot goes before the next."""
    left, first = torch.empty(0, shape[1]), 0
    for _, some in _rows(parts):
        held = torch.cat((left, some)) if len(left) else some
        whole = len(held) // TILE * TILE
        left = held[whole:]
        if whole:
            yield first, held[:whole]
            first += whole


def _rows(parts: Iterable[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Some rows at a time in float32, so that what is computed on the way stays small; and where they belong."""
    first = 0
    for part in parts:
        for some in torch.split(part, max(1, _CPU_CHUNK // part.shape[1])):
            yield slice(first, first + len(some)), some.float()
            first += len(some)


def grouped_int8(rows: Tensor) -> tuple[Tensor, Tensor, None]:
    """int8 numbers of float32 `rows` and a float16 scale a group, as in Q8_0."""
    groups = rows.view(rows.shape[0], -1, GROUP)
    scale = (groups.abs().amax(-1) / 127).clamp(min=_SMALLEST_HALF).half()
    numbers = (groups / scale[..., None].float()).round_().clamp_(-127, 127)
    return numbers.to(torch.int8).view(rows.shape), scale, None


def grouped_int4(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers from 0 to 15 of float32 `rows`, and a float16 scale and minimum a group, as in Q4_1."""
    groups = rows.view(rows.shape[0], -1, GROUP)
    low, high = groups.aminmax(dim=-1)
    scale, minimum = ((high - low) / 15).clamp(min=_SMALLEST_HALF).half(), low.half()
    numbers = ((groups - minimum[..., None].float()) / scale[..., None].float()).round_().clamp_(0, 15)
    return numbers.to(torch.uint8).view(rows.shape), scale, minimum


def _to_int8(rows: Tensor) -> tuple[Tensor, Tensor]:
    scale = (rows.abs().amax(1) / 127).clamp(min=_SMALLEST).bfloat16()
    return (rows / scale[:, None].float()).round_().clamp_(-127, 127).to(torch.int8), scale


def _to_int4(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    groups = rows.view(rows.shape[0], -1, GROUP)
    low, high = groups.aminmax(dim=-1)
    scale = ((high - low) / 15).clamp(min=_SMALLEST).bfloat16()
    zero = (low + 8 * scale.float()).bfloat16()
    numbers = ((groups - zero[..., None].float()) / scale[..., None].float()).round_().add_(8).clamp_(0, 15)
    return numbers.to(torch.uint8).view(rows.shape), scale, zero


def _from_nibbles(weight: Tensor, scale: Tensor, zero: Tensor, dtype: torch.dtype) -> Tensor:
    numbers = torch.stack((weight & 15, weight >> 4), dim=-1).view(weight.shape[0], -1, GROUP).to(dtype) - 8
    return (numbers * scale[..., None].to(dtype) + zero[..., None].to(dtype)).view(weight.shape[0], -1)


def _chunk(weight: Tensor) -> int:
    """Rows dequantised at a time."""
    values = _CPU_CHUNK if weight.device.type == "cpu" else _GPU_CHUNK
    return max(1, values // weight.shape[1])


def _biased(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + bias
