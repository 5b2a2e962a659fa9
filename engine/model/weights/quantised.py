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

GROUP = 32
"""Columns that share a scale in 4 bits. Q4_0, Q4_1 and Q4_K files have the same groups and lose next to nothing again:
KL 0.002 on the starter model, 0.30 with groups of 64."""
FEW = 8
"""Tokens up to which torch's int8 product beats dequantising to float32: 0.16 against 0.26 ms for 4 tokens through
576 x 576, as long for 8, 7.5 against 1.8 ms for 128 (AVX2, one thread)."""
_CPU_CHUNK, _GPU_CHUNK = 2**19, 2**25
"""Values dequantised at a time. 2 MB of float32 stay in a core's cache and below the size for which every allocation
asks the kernel for new pages: 128 tokens through 3072 x 576 take 17 ms so, 24 ms in one piece."""
_PACKED = 256
"""Rows packed at a time, from 4 bytes a number: whole tiles of the kernel, which have 64 rows at most."""
_SMALLEST = 1e-30
"""The scale of zeros."""


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
class Int8LinearByOp(Int8Linear):
    """The same by torch's own product for a few tokens on a CPU, which rounds what goes in and out to bfloat16."""

    def __call__(self, x: Tensor) -> Tensor:
        """y `[tokens, rows]`."""
        if x.shape[0] > FEW:
            return Int8Linear.__call__(self, x)
        return _biased(torch.ops.aten._weight_int8pack_mm(x.bfloat16(), self.weight, self.scale).to(x.dtype), self.bias)


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
class Int4LinearByOp:
    """The same by torch's own product on a CPU, which rounds what goes in and out to bfloat16: `packed` in an order of
    its own, `scale_zero` `[groups, rows, 2]`.

    Reading a prompt is about half as fast as in float32: its product is made for few tokens, and what it has packed
    cannot be read back.
    """

    packed: Tensor
    scale_zero: Tensor
    bias: Tensor | None

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return size_of(self.packed, self.scale_zero, self.bias)

    @property
    def parameters(self) -> int:
        """Numbers of weight and bias."""
        return 2 * self.packed.numel() + (0 if self.bias is None else self.bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        """y `[tokens, rows]`."""
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(x.bfloat16(), self.packed, GROUP, self.scale_zero)
        return _biased(y.to(x.dtype), self.bias)


def int8(
    parts: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None, dtype: torch.dtype, device: torch.device
) -> Int8Linear:
    """Quantise the rows of `parts`, `shape` in all, each row by its largest value."""
    weight, scale = torch.empty(shape, dtype=torch.int8), torch.empty(shape[0], dtype=torch.bfloat16)
    for rows, some in _rows(parts):
        weight[rows], scale[rows] = _to_int8(some)
    # The product reads 32 columns at a time and does not look where a row ends.
    form = Int8LinearByOp if device.type == "cpu" and shape[1] % 32 == 0 else Int8Linear
    return form(weight.to(device), scale.to(device), None if bias is None else bias.to(device), dtype)


def int4(
    parts: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None, device: torch.device
) -> Int4Linear | Int4LinearByOp:
    """Quantise the rows of `parts`, `shape` in all, in groups of `GROUP` columns, each between its smallest and largest
    value. `shape` must be whole groups."""
    numbers = torch.empty(shape, dtype=torch.uint8)
    scale, zero = torch.empty(2, shape[0], shape[1] // GROUP, dtype=torch.bfloat16)
    for rows, some in _rows(parts):
        numbers[rows], scale[rows], zero[rows] = _to_int4(some)
    bias = None if bias is None else bias.to(device)
    if device.type == "cpu" and shape[0] % 16 == 0:
        packed = torch.empty(shape[0], shape[1] // 2, dtype=torch.uint8)
        for first in range(0, shape[0], _PACKED):
            some = numbers[first : first + _PACKED].int()
            packed[first : first + _PACKED] = torch.ops.aten._convert_weight_to_int4pack_for_cpu(some, 1)
        return Int4LinearByOp(packed, torch.stack((scale, zero), dim=-1).transpose(0, 1).contiguous(), bias)
    nibbles = numbers[:, 0::2] | (numbers[:, 1::2] << 4)
    return Int4Linear(nibbles.to(device), scale.to(device), zero.to(device), bias)


def _rows(parts: Iterable[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Some rows at a time in float32, so that what is computed on the way stays small; and where they belong."""
    first = 0
    for part in parts:
        for some in torch.split(part, max(1, _CPU_CHUNK // part.shape[1])):
            yield slice(first, first + len(some)), some.float()
            first += len(some)


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
