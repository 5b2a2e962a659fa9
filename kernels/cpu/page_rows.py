"""Rows of pages: float16, which most CPUs read and write 8 at a time, or float32 as they were computed.

A kernel takes pages as int16 `[..., slots, units]`, a unit for each value in float16 and two in float32, so that one
compiled function serves both types: to compile it for another takes seconds, to ask which it is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from llvmlite import ir
from numba import types
from torch import Tensor

from kernels.cpu.compiled import jit
from kernels.cpu.vectors import (
    F16,
    F32,
    I32,
    Builder,
    Value,
    filled,
    load,
    number,
    repeat,
    store,
    vector,
    word,
)  # fmt: skip

PAGE_TYPES = (torch.float16, torch.float32)
"""What pages may be for the kernels."""
LANES = 8
"""Values of a row that are read or written at a time: a head's dimensions must be a multiple."""
_LARGEST = 65504.0
_INFINITE = 0x7F800000


def units(pages: Tensor) -> Any:
    """Pages `[..., slots, dim]` as kernels take them. Raises ValueError for another type."""
    if pages.dtype not in PAGE_TYPES:
        raise ValueError(f"pages of {pages.dtype}; float16 and float32 are taken")
    return pages.view(torch.int16).numpy()


def values_at(builder: Builder, address: Value, half: bool) -> Value:
    """8 values of a row, as float32."""
    if half:
        return builder.fpext(load(builder, address, vector(F16, LANES)), vector(F32, LANES))
    return load(builder, address, vector(F32, LANES))


def _halves(builder: Builder, x: Value) -> Value:
    """8 float32 in float16, to nearest; what is finite stays so, and what is not stays what it is."""
    kind = ir.FunctionType(x.type, [x.type] * 2)
    sign = builder.module.declare_intrinsic(f"llvm.copysign.v{LANES}f32", (), kind)
    bits = builder.and_(builder.bitcast(x, vector(I32, LANES)), filled(I32, LANES, 0x7FFFFFFF))
    size = builder.bitcast(bits, x.type)
    largest = filled(F32, LANES, _LARGEST)
    beyond = builder.fcmp_ordered(">", size, largest)
    finite = builder.icmp_signed("<", bits, filled(I32, LANES, _INFINITE))
    kept = builder.select(builder.and_(beyond, finite), builder.call(sign, [largest, x]), x)
    return builder.fptrunc(kept, vector(F16, LANES))


def _for_each_eight(each: Callable[[Builder, Value], Value], from_size: int, to_size: int) -> Any:
    """word(source, count, target): 8 of `count` values after the other, what `each` makes of those at an address is
    stored. A value has so many bytes at the addresses `source` and `target`."""

    def generate(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        source, count, target = args

        def one(index: Value, _: Sequence[Value]) -> Sequence[Value]:
            first, to = (
                builder.add(address, builder.mul(index, number(LANES * size)))
                for address, size in ((source, from_size), (target, to_size))
            )
            store(builder, each(builder, first), to)
            return []

        repeat(builder, builder.sdiv(count, number(LANES)), [], one)
        return context.get_dummy_value()

    @word
    def all_of(_typing: Any, source: Any, count: Any, target: Any) -> Any:
        return types.void(*[types.int64] * 3), generate

    return all_of


def _kept(builder: Builder, address: Value) -> Value:
    return _halves(builder, values_at(builder, address, half=False))


_copy = _for_each_eight(partial(values_at, half=False), 4, 4)
_read = _for_each_eight(partial(values_at, half=True), 2, 4)
_write = _for_each_eight(_kept, 4, 2)
_round = _for_each_eight(lambda builder, at: builder.fpext(_kept(builder, at), vector(F32, LANES)), 4, 4)


@jit
def write_row(x: Any, row: Any) -> None:
    """Keep `x` float32 `[dim]` in a page's `row` `[units]`."""
    if len(row) == len(x):
        _write(x.ctypes.data, len(x), row.ctypes.data)
    else:
        _copy(x.ctypes.data, len(x), row.ctypes.data)


@jit
def read_row(row: Any, out: Any) -> None:
    """`out` float32 `[dim]` of a page's `row` `[units]`."""
    if len(row) == len(out):
        _read(row.ctypes.data, len(out), out.ctypes.data)
    else:
        _copy(row.ctypes.data, len(out), out.ctypes.data)


@jit
def round_row_to_half(x: Any) -> None:
    """Make `x` float32 `[dim]` what it will be when it is read back from a page in float16."""
    _round(x.ctypes.data, len(x), x.ctypes.data)
