"""The gate of a gated MLP (Shazeer, arXiv 2002.05202): `activation(gate) * up`, from the stacked projection of both.

Computed in float32 and rounded once, in one pass: the projection is read once and half as much is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.arguments import FLOATS, Layout, expect, expect_dims, expect_float
from kernels.runtime import CompileCase, ceil_div, jit, require, tl

_BLOCK = 1024
_WARPS = 4


class Gate(StrEnum):
    """The activation of the gate: x * sigmoid(x), or GELU in its tanh form (arXiv 1606.08415)."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@jit
def _gated(
    gate_up: tl.tensor, out: tl.tensor, width: tl.tensor, row_stride: tl.tensor, GELU: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """BLOCK values of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    held = column < width
    source = gate_up + row * row_stride + column
    gate = tl.load(source, mask=held, other=0.0).to(tl.float32)
    up = tl.load(source + width, mask=held, other=0.0).to(tl.float32)
    # GELU is a SiLU of another inside: (1 + tanh(u)) / 2 is sigmoid(2u), and u = sqrt(2 / pi) * (x + 0.044715 x³).
    inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if GELU else gate
    y = gate / (1.0 + tl.exp(-inner)) * up
    tl.store(out + row * width + column, y.to(out.dtype.element_ty), mask=held)


def gated(gate_up: Tensor, gate: Gate) -> Tensor:
    """`activation(left half) * right half` of each row, by the Triton kernel; `[tokens, width]`, contiguous.

    `gate_up`: `[tokens, 2 * width]`, the gate first; float32, float16 or bfloat16, rows of any stride.
    Raises ValueError naming what is wrong, and KernelUnavailableError on a device without the kernel.
    """
    _check(gate_up)
    require("gated", "gated_torch", gate_up.device)
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty((tokens, width))
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _gated[(tokens, ceil_div(width, _BLOCK))](
            gate_up, out, width, gate_up.stride(0), GELU=gate is Gate.GELU_TANH, BLOCK=_BLOCK, num_warps=_WARPS
        )
    return out


def gated_torch(gate_up: Tensor, gate: Gate) -> Tensor:
    """What `gated` computes, in plain torch, on any device."""
    _check(gate_up)
    left, right = gate_up.float().chunk(2, dim=-1)
    match gate:
        case Gate.SILU:
            active = F.silu(left)
        case Gate.GELU_TANH:
            active = F.gelu(left, approximate="tanh")
    return (active * right).to(gate_up.dtype)


def _check(gate_up: Tensor) -> None:
    expect_dims("gate_up", gate_up, "[tokens, 2 * width]")
    expect_float("gate_up", gate_up)
    expect("gate_up", gate_up, tuple(gate_up.shape), gate_up.dtype, ("gate_up", gate_up), Layout.ROWS)
    if gate_up.shape[1] % 2:
        raise ValueError(f"gate_up has shape {tuple(gate_up.shape)}: expected [tokens, 2 * width]")


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: both activations, the three types."""
    for dtype, gelu in (
        (torch.bfloat16, False), (torch.bfloat16, True), (torch.float16, False), (torch.float32, False),
        (torch.float32, True),
    ):  # fmt: skip
        values = f"*{FLOATS[dtype]}:16"
        yield CompileCase(
            f"gated {FLOATS[dtype]} {'gelu_tanh' if gelu else 'silu'}", _gated,
            {"gate_up": values, "out": values, "width": "i32:16", "row_stride": "i32:16"},
            {"GELU": gelu, "BLOCK": _BLOCK}, _WARPS, 3,
        )  # fmt: skip
