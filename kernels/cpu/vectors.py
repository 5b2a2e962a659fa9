"""Words of LLVM's vector language that Numba's Python has no words for.

All of it but one instruction is generic: LLVM turns a product of 16-bit vectors into `vpmaddwd` on x86 and into its
like elsewhere, and vectors that are wider than the machine's into several.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

I8, I16, I32, I64, F16, F32 = *map(ir.IntType, (8, 16, 32, 64)), ir.HalfType(), ir.FloatType()
binding.initialize_native_asmparser()  # reads what is written as an instruction
_features = binding.get_host_cpu_features() if config.CPU_NAME is None and config.CPU_FEATURES is None else {}
VNNI = bool(_features.get("avx512vnni"))
"""Whether the processor adds products of 16-bit numbers to 32-bit sums in one instruction."""
AVX2 = bool(_features.get("avx2")) and not VNNI
"""Whether it has vectors of 256 bits at the most, with whole numbers in them."""
Builder = Any  # llvmlite ships no types
Value = Any


def word(function: Callable[..., Any]) -> Any:
    """`numba.extending.intrinsic`: a function whose LLVM code is written by hand."""
    return intrinsic(function)


def vector(kind: Any, lanes: int) -> Any:
    """The type of a vector."""
    return ir.VectorType(kind, lanes)


def filled(kind: Any, lanes: int, value: float) -> Value:
    """A constant vector with one value in all lanes."""
    return ir.Constant(vector(kind, lanes), [value] * lanes)


def number(value: int) -> Value:
    """A constant int64."""
    return ir.Constant(I64, value)


def at(builder: Builder, address: Value, offset: int) -> Value:
    """An address some bytes on."""
    return builder.add(address, number(offset)) if offset else address


def load(builder: Builder, address: Value, kind: Any) -> Value:
    """What lies at an address, on whatever boundary."""
    return builder.load(builder.inttoptr(address, ir.PointerType(kind)), align=1)


def store(builder: Builder, value: Value, address: Value) -> None:
    """Write to an address, on whatever boundary."""
    builder.store(value, builder.inttoptr(address, ir.PointerType(value.type)), align=1)


def splat(builder: Builder, value: Value, lanes: int) -> Value:
    """A vector with one value in all lanes."""
    kind = vector(value.type, lanes)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), filled(I32, lanes, 0))


def shuffled(builder: Builder, x: Value, y: Value, lanes: Sequence[int]) -> Value:
    """Lanes of `x`, and after them of `y`, in another order."""
    return builder.shuffle_vector(x, y, ir.Constant(vector(I32, len(lanes)), list(lanes)))


def paired(builder: Builder, x: Value, y: Value) -> Value:
    """Sums of neighbouring lanes of two `<8 x float>`, in x86's order: two of `x`, two of `y`, twice."""
    even, odd = (shuffled(builder, x, y, [i + first for i in (0, 2, 8, 10, 4, 6, 12, 14)]) for first in (0, 1))
    return builder.fadd(even, odd)


def across(builder: Builder, x: Value, join: Callable[[Value, Value], Value]) -> Value:
    """What `join` makes of all 8 lanes."""
    for half in (4, 2, 1):
        x = join(x, shuffled(builder, x, x, [(lane + half) % 8 for lane in range(8)]))
    return builder.extract_element(x, ir.Constant(I32, 0))


def add_products_by_two(builder: Builder, total: Value, x: Value, place: Value, offset: int) -> Value:
    """`total + x[2i] * y[0] + x[2i + 1] * y[1]` for `<32 x i16>` x and the two i16 y at `place + offset`, `<16 x i32>`.

    Where one instruction does it (VNNI) it is written as such: LLVM takes it apart again and reorders the parts until
    it runs out of registers. So 128 tokens take 2.3 ms for 3072 x 576 in 4 bits, not 4.3 (one thread).
    """
    if VNNI:
        kind = ir.FunctionType(total.type, [x.type, place.type, total.type])
        code = f"vpdpwssd {offset}($2){{1to16}}, $1, $0"
        return builder.asm(kind, code, "=v,v,r,0,~{memory}", [x, place, total], True)
    two = load(builder, at(builder, place, offset), I32)
    y = builder.bitcast(splat(builder, two, total.type.count), x.type)
    wide = vector(I32, x.type.count)
    products = builder.mul(builder.sext(x, wide), builder.sext(y, wide))
    none = ir.Constant(wide, ir.Undefined)
    even, odd = (shuffled(builder, products, none, range(first, x.type.count, 2)) for first in (0, 1))
    return builder.add(total, builder.add(even, odd))


def fused(builder: Builder, x: Value, y: Value, z: Value) -> Value:
    """`x * y + z` of vectors of float32, rounded once."""
    kind = ir.FunctionType(x.type, [x.type] * 3)
    return builder.call(builder.module.declare_intrinsic(f"llvm.fma.v{x.type.count}f32", (), kind), [x, y, z])


def repeat(
    builder: Builder, count: Value, begin: Sequence[Value], body: Callable[[Value, Sequence[Value]], Sequence[Value]]
) -> Sequence[Value]:
    """`for i in range(count)`, at least once; `body(i, values)` returns the values for the next time."""
    before = builder.block
    head, done = builder.append_basic_block("repeat"), builder.append_basic_block("done")
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), before)
    values = [builder.phi(value.type) for value in begin]
    for phi, value in zip(values, begin, strict=True):
        phi.add_incoming(value, before)
    after = body(index, values)
    following = builder.add(index, ir.Constant(I64, 1))
    index.add_incoming(following, builder.block)
    for phi, value in zip(values, after, strict=True):
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), head, done)
    builder.position_at_end(done)
    return after


@word
def as_float(_typing: Any, bits: Any) -> Any:
    """The float32 that has these 32 bits."""

    def generate(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return builder.bitcast(args[0], F32)

    return types.float32(types.int32), generate


@word
def as_bits(_typing: Any, value: Any) -> Any:
    """The 32 bits of a float32. Unlike those of floats, comparisons of integers are made many at a time."""

    def generate(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return builder.bitcast(args[0], I32)

    return types.int32(types.float32), generate


@word
def byte_at(_typing: Any, address: Any) -> Any:
    """The signed byte at an address."""

    def generate(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return builder.sext(load(builder, args[0], I8), I32)

    return types.int32(types.int64), generate


@word
def half_at(_typing: Any, address: Any) -> Any:
    """The float16 at an address, as float32."""

    def generate(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return builder.fpext(load(builder, args[0], F16), F32)

    return types.float32(types.int64), generate


@word
def add_at(_typing: Any, address: Any, more: Any) -> Any:
    """Add to the int64 at an address, as one act among threads; returns what was there."""

    def generate(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        pointer = builder.inttoptr(args[0], ir.PointerType(I64))
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@word
def read_at(_typing: Any, address: Any) -> Any:
    """The int64 at an address, with all that its writer wrote before."""

    def generate(_context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        return builder.load_atomic(builder.inttoptr(args[0], ir.PointerType(I64)), "acquire", 8)

    return types.int64(types.int64), generate


@word
def pause(_typing: Any) -> Any:
    """Tell the core that this is a waiting loop."""

    def generate(context: Any, builder: Builder, _signature: Any, _args: Sequence[Value]) -> Value:
        if platform.machine() in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), generate


@word
def yield_core(_typing: Any) -> Any:
    """Let another thread have the core."""

    def generate(context: Any, builder: Builder, _signature: Any, _args: Sequence[Value]) -> Value:
        if sys.platform != "win32":
            kind = ir.FunctionType(I32, [])
            builder.call(
                builder.module.globals.get("sched_yield") or ir.Function(builder.module, kind, "sched_yield"), []
            )
        return context.get_dummy_value()

    return types.void(), generate
