"""What every kernel file shares: Triton where it can be imported, one sentence where it cannot, and compile cases.

Kernel files take `jit` and `tl` from here, so that they import on a machine without Triton (Windows, macOS, a
CPU-only image) and their torch twins work there. With TRITON_INTERPRET=1 set before the first import, kernels run
on the CPU under Triton's interpreter: slow, for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

try:
    import triton
    import triton.language as tl

    MISSING = ""
except ImportError as error:
    triton = tl = None
    MISSING = str(error)

__all__ = [
    "INTERPRETED", "MISSING", "CompileCase", "KernelUnavailableError", "ceil_div", "dot", "jit", "next_power_of_two",
    "require", "serves", "tl", "whole",
]  # fmt: skip

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
"""Kernels run on CPU tensors, under the interpreter; read when this module is first imported."""

Kernel = Any
"""A function decorated by `jit`; Triton ships no types."""


class KernelUnavailableError(RuntimeError):
    """A kernel was asked for on a machine or device that cannot run it; says which and what to call instead."""


class _MissingKernel:
    """Stands in for a kernel where Triton is missing: importing works, launching raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, grid: object) -> Callable[..., None]:
        raise KernelUnavailableError(f"the kernel {self._name} needs Triton, which cannot be imported: {MISSING}")


def jit(function: Callable[..., Any]) -> Kernel:
    """`triton.jit`, or where Triton is missing a stand-in that raises KernelUnavailableError when launched."""
    return _MissingKernel(function.__name__) if triton is None else triton.jit(function)


if triton is not None:
    _WIDEN = tl.constexpr(INTERPRETED)


@jit
def dot(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """`tl.dot` summed in float32; float32 operands are not rounded to TF32.

    The interpreter keeps bfloat16 as raw bits and its dot multiplies those (triton #11584, closed unfixed), so there
    the operands are widened first. Compiled kernels do not have that branch.
    """
    if _WIDEN:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@jit
def whole(numbers: tl.tensor, dtype: tl.dtype) -> tl.tensor:
    """int8 `numbers` in a floating type, all of which hold them exactly; by way of float32 under the interpreter, for
    the same reason."""
    if _WIDEN:
        numbers = numbers.to(tl.float32)
    return numbers.to(dtype)


def serves(device: torch.device) -> bool:
    """Whether kernels run on tensors of `device`."""
    return triton is not None and device.type == ("cpu" if INTERPRETED else "cuda")


def require(launcher: str, twin: str, device: torch.device) -> None:
    """Raise KernelUnavailableError unless `launcher` can run on `device`; `twin` is what to call instead."""
    if serves(device):
        return
    if triton is None:
        reason = f"needs Triton, which cannot be imported ({MISSING})"
    else:
        reason = f"runs on {'the CPU under TRITON_INTERPRET=1' if INTERPRETED else 'CUDA tensors'}, not on {device}"
    raise KernelUnavailableError(f"{launcher} {reason}: call {twin} there")


@dataclass(frozen=True, slots=True)
class CompileCase:
    """One specialisation of a kernel, as its launcher would make it, for `python -m kernels.compile`.

    `signature` gives each runtime argument's Triton type in order, a tuple for a tuple argument; the suffix ":16"
    says that the value is a multiple of 16, which the launcher's tensors are and vector loads depend on.
    `constants` are the constexpr arguments.
    """

    name: str
    kernel: Kernel
    signature: Mapping[str, str | tuple[str, ...]]
    constants: Mapping[str, int]
    num_warps: int
    num_stages: int


def ceil_div(numerator: int, denominator: int) -> int:
    """Quotient rounded up."""
    return -(-numerator // denominator)


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least n, for n >= 1."""
    return 1 << (n - 1).bit_length()
