"""RMSNorm (Zhang and Sennrich, arXiv 1910.07467): alone, of each head, or with the residual add that comes before it.

`y = x / sqrt(mean(x²) + eps) * weight`, the mean and the products in float32, rounded once to the type of x. Weights
are float32, as the decoder holds them. A row is read once: the tile of a program holds whole rows, many of them where
they are short (the queries and keys of Qwen3), one where they are long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.arguments import FLOATS, Layout, expect, expect_float
from kernels.runtime import CompileCase, ceil_div, jit, next_power_of_two, require, tl

MAX_WIDTH = 16384
"""Values a row: 16 warps hold one of float32 in 32 registers a thread."""
_TILE = 2048


@jit
def _normed(x: tl.tensor, weight: tl.tensor, eps: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """Rows `[BLOCK_ROWS, BLOCK_W]` in float32, 0 beyond WIDTH, normed and weighed."""
    mean = tl.sum(x * x, 1) / WIDTH
    return x * (1.0 / tl.sqrt(mean + eps))[:, None] * weight


@jit
def _rms_norm(
    x: tl.tensor, weight: tl.tensor, out: tl.tensor, rows: tl.tensor, heads: tl.tensor, eps: tl.tensor,
    x_strides: tl.tuple, out_strides: tl.tuple, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_W: tl.constexpr,
) -> None:  # fmt: skip
    """BLOCK_ROWS rows; row r is head `r % heads` of token `r // heads`."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_W)[None, :]
    held = (row < rows)[:, None] & (column < WIDTH)
    token, head = (row // heads).to(tl.int64)[:, None], (row % heads)[:, None]
    values = tl.load(x + token * x_strides[0] + head * x_strides[1] + column, mask=held, other=0.0).to(tl.float32)
    y = _normed(values, tl.load(weight + column, mask=column < WIDTH, other=0.0), eps, WIDTH)
    tl.store(out + token * out_strides[0] + head * out_strides[1] + column, y.to(out.dtype.element_ty), mask=held)


@jit
def _add_rms_norm(
    hidden: tl.tensor, x: tl.tensor, weight: tl.tensor, added: tl.tensor, out: tl.tensor, rows: tl.tensor,
    scale: tl.tensor, eps: tl.tensor, WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_W: tl.constexpr,
) -> None:  # fmt: skip
    """BLOCK_ROWS rows of `hidden + x * scale`, and their norm."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_W)[None, :]
    held = (row < rows)[:, None] & (column < WIDTH)
    offset = row.to(tl.int64)[:, None] * WIDTH + column
    update = tl.load(x + offset, mask=held, other=0.0).to(tl.float32) * scale
    total = tl.load(hidden + offset, mask=held, other=0.0).to(tl.float32) + update
    # The norm is of the sum as it is stored, so that it does not depend on whether the two were computed together.
    stored = total.to(added.dtype.element_ty)
    tl.store(added + offset, stored, mask=held)
    y = _normed(stored.to(tl.float32), tl.load(weight + column, mask=column < WIDTH, other=0.0), eps, WIDTH)
    tl.store(out + offset, y.to(out.dtype.element_ty), mask=held)


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Compile-time sizes: 8 values a thread, as far as 1 to 16 warps allow."""

    block_rows: int
    block_w: int
    num_warps: int

    @classmethod
    def of(cls, width: int) -> _Tiling:
        block_w = max(16, next_power_of_two(width))
        block_rows = max(1, min(16, _TILE // block_w))
        return cls(block_rows, block_w, max(1, min(16, block_rows * block_w // 256)))


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """The norm of each row, by the Triton kernel; as x, contiguous unless `out` is given.

    - `x`: `[tokens, width]` or `[tokens, heads, width]`, float32, float16 or bfloat16, any strides with the last
      dimension contiguous (queries cut out of a stacked projection); width at most MAX_WIDTH.
    - `weight`: float32 `[width]`.
    - `out`: where to put the result, like x in shape, type and layout. It may be x itself.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    _check(x, weight, out)
    require("rms_norm", "rms_norm_torch", x.device)
    if x.numel() == 0:
        return out
    width, heads = x.shape[-1], 1 if x.ndim == 2 else x.shape[1]
    rows, tiling = x.shape[0] * heads, _Tiling.of(x.shape[-1])
    by_head = (tensor.unsqueeze(1) if x.ndim == 2 else tensor for tensor in (x, out))
    x_strides, out_strides = (tensor.stride()[:2] for tensor in by_head)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _rms_norm[(ceil_div(rows, tiling.block_rows),)](
            x, weight, out, rows, heads, eps, x_strides, out_strides,
            WIDTH=width, BLOCK_ROWS=tiling.block_rows, BLOCK_W=tiling.block_w, num_warps=tiling.num_warps,
        )  # fmt: skip
    return out


def rms_norm_torch(x: Tensor, weight: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
    """What `rms_norm` computes, in plain torch, on any device."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    _check(x, weight, out)
    wide = x.float()
    return out.copy_(wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight)


def add_rms_norm(hidden: Tensor, x: Tensor, weight: Tensor, eps: float, *, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """`hidden + x * scale`, rounded once, and the norm of that, by the Triton kernel; both new.

    - `hidden`, `x`: `[tokens, width]`, contiguous, of one type: float32, float16 or bfloat16.
    - `weight`: float32 `[width]`. `scale`: the model's factor on what a layer adds (Granite), 1 elsewhere.

    Raises as `rms_norm` does.
    """
    _check_added(hidden, x, weight)
    require("add_rms_norm", "add_rms_norm_torch", x.device)
    added, out = torch.empty_like(hidden), torch.empty_like(hidden)
    rows, width = hidden.shape
    tiling = _Tiling.of(width)
    if rows:
        with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
            _add_rms_norm[(ceil_div(rows, tiling.block_rows),)](
                hidden, x, weight, added, out, rows, scale, eps,
                WIDTH=width, BLOCK_ROWS=tiling.block_rows, BLOCK_W=tiling.block_w, num_warps=tiling.num_warps,
            )  # fmt: skip
    return added, out


def add_rms_norm_torch(
    hidden: Tensor, x: Tensor, weight: Tensor, eps: float, *, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """What `add_rms_norm` computes, in plain torch, on any device."""
    _check_added(hidden, x, weight)
    added = (hidden.float() + x.float() * scale).to(hidden.dtype)
    return added, rms_norm_torch(added, weight, eps)


def _check(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """Raise ValueError with one sentence about the first argument that does not fit."""
    if x.ndim not in (2, 3) or not 1 <= x.shape[-1] <= MAX_WIDTH:
        raise ValueError(
            f"x has shape {tuple(x.shape)}: expected [tokens, width] or [tokens, heads, width], width 1 to {MAX_WIDTH}"
        )
    expect_float("x", x)
    expect("x", x, tuple(x.shape), x.dtype, ("x", x), Layout.ROWS)
    expect("weight", weight, (x.shape[-1],), torch.float32, ("x", x), Layout.DENSE)
    expect("out", out, tuple(x.shape), x.dtype, ("x", x), Layout.ROWS)


def _check_added(hidden: Tensor, x: Tensor, weight: Tensor) -> None:
    if hidden.ndim != 2 or not 1 <= hidden.shape[1] <= MAX_WIDTH:
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}: expected [tokens, width], width 1 to {MAX_WIDTH}")
    expect_float("hidden", hidden)
    for name, tensor in (("hidden", hidden), ("x", x)):
        expect(name, tensor, tuple(hidden.shape), hidden.dtype, ("hidden", hidden), Layout.DENSE)
    expect("weight", weight, (hidden.shape[1],), torch.float32, ("hidden", hidden), Layout.DENSE)


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: heads, odd widths, and the widest row, in each type."""
    for dtype, width in (
        (torch.bfloat16, 64), (torch.bfloat16, 128), (torch.bfloat16, 576), (torch.float16, 4096),
        (torch.bfloat16, MAX_WIDTH), (torch.float32, MAX_WIDTH),
    ):  # fmt: skip
        tiling, values = _Tiling.of(width), f"*{FLOATS[dtype]}:16"
        constants = {"WIDTH": width, "BLOCK_ROWS": tiling.block_rows, "BLOCK_W": tiling.block_w}
        yield CompileCase(
            f"rms_norm {FLOATS[dtype]} {width}", _rms_norm,
            {"x": values, "weight": "*fp32:16", "out": values, "rows": "i32", "heads": "i32", "eps": "fp32"}
            | dict.fromkeys(("x_strides", "out_strides"), ("i32:16", "i32:16")),
            constants, tiling.num_warps, 3,
        )  # fmt: skip
        yield CompileCase(
            f"add_rms_norm {FLOATS[dtype]} {width}", _add_rms_norm,
            {"hidden": values, "x": values, "weight": "*fp32:16", "added": values, "out": values}
            | {"rows": "i32", "scale": "fp32", "eps": "fp32"},
            constants, tiling.num_warps, 3,
        )  # fmt: skip
