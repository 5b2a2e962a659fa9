"""Rotary embedding (RoFormer, arXiv 2104.09864) of new queries and keys, and K and V into their page slots.

`rope` is one pass over what the stacked projection gave: each query is rotated for the window and, where its chat has
evicted something, a second time for the sinks (see `paged_attention`); each key is rotated once. Angles come as rows of
cosines and sines, computed in float64 on the host: here they are only multiplied. The halves of what is rotated are
paired, cosines stand in a row twice and the first half's sines are negated, so that value i becomes
`x[i] * cos[i] + x[partner of i] * sin[i]`. Dimensions after those that have angles stay as they are.

`store` is a pass of its own: a prompt's chunk attends before it is stored, since it may write over what its first
tokens still see, and packed pages hold rows that are turned once more in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.arguments import FLOATS, Layout, expect, expect_dims, expect_float
from kernels.runtime import CompileCase, ceil_div, jit, next_power_of_two, require, tl

MAX_HEAD_DIM = 256
_TILE = 1024


@dataclass(frozen=True, slots=True)
class Angles:
    """Cosines and signed sines of some tokens, float32 `[tokens, rotated dimensions]`, contiguous."""

    cos: Tensor
    sin: Tensor


@jit
def _turned(
    x: tl.tensor, partner: tl.tensor, cos: tl.tensor, sin: tl.tensor, token: tl.tensor, dim: tl.tensor,
    ROTARY: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Rows `x` rotated by the angles of `token`, float32; cosine 1 and sine 0 beyond ROTARY leave the rest alone."""
    c = tl.load(cos + token * ROTARY + dim, mask=dim < ROTARY, other=1.0)
    s = tl.load(sin + token * ROTARY + dim, mask=dim < ROTARY, other=0.0)
    return x * c + partner * s


@jit
def _rotate(
    rows: tl.tensor, strides: tl.tuple, cos: tl.tensor, sin: tl.tensor, sink_cos: tl.tensor, sink_sin: tl.tensor,
    out: tl.tensor, out_sink: tl.tensor, token: tl.tensor, head: tl.tensor, dim: tl.tensor, HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr, TWO_PHASE: tl.constexpr,
) -> None:  # fmt: skip
    """Some heads of a token, by one set of angles or by two."""
    held = (head < HEADS) & (dim < HEAD_DIM)
    row = rows + token * strides[0] + head * strides[1]
    # The pairs are read beside the rows, from the same cache lines: nothing is shuffled between threads.
    partner = tl.where(dim < ROTARY // 2, dim + ROTARY // 2, dim - ROTARY // 2)
    x = tl.load(row + dim, mask=held, other=0.0).to(tl.float32)
    paired = tl.load(row + partner, mask=held & (dim < ROTARY), other=0.0).to(tl.float32)
    place = (token * HEADS + head) * HEAD_DIM + dim
    tl.store(out + place, _turned(x, paired, cos, sin, token, dim, ROTARY).to(out.dtype.element_ty), mask=held)
    if TWO_PHASE:
        turned = _turned(x, paired, sink_cos, sink_sin, token, dim, ROTARY)
        tl.store(out_sink + place, turned.to(out.dtype.element_ty), mask=held)


@jit
def _rope(
    q: tl.tensor, k: tl.tensor, cos: tl.tensor, sin: tl.tensor, sink_cos: tl.tensor, sink_sin: tl.tensor,
    q_window: tl.tensor, q_sink: tl.tensor, k_turned: tl.tensor, q_strides: tl.tuple, k_strides: tl.tuple,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    TWO_PHASE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
) -> None:  # fmt: skip
    """BLOCK_H heads of one token: the first programs take its queries, the others its keys."""
    Q_BLOCKS: tl.constexpr = (Q_HEADS + BLOCK_H - 1) // BLOCK_H
    token, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head, dim = tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_D)[None, :]
    if block < Q_BLOCKS:
        _rotate(
            q, q_strides, cos, sin, sink_cos, sink_sin, q_window, q_sink, token, block * BLOCK_H + head, dim, Q_HEADS,
            HEAD_DIM, ROTARY, TWO_PHASE,
        )  # fmt: skip
    else:
        _rotate(
            k, k_strides, cos, sin, sink_cos, sink_sin, k_turned, k_turned, token,
            (block - Q_BLOCKS) * BLOCK_H + head, dim, KV_HEADS, HEAD_DIM, ROTARY, False,
        )  # fmt: skip


@jit
def _store(
    k: tl.tensor, v: tl.tensor, slots: tl.tensor, k_pages: tl.tensor, v_pages: tl.tensor, k_strides: tl.tuple,
    v_strides: tl.tuple, k_page_strides: tl.tuple, v_page_strides: tl.tuple, HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
) -> None:  # fmt: skip
    """The keys and values of BLOCK_H heads of one token, into its slot."""
    token = tl.program_id(0).to(tl.int64)
    head, dim = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_D)[None, :]
    slot = tl.load(slots + token)
    page, offset = slot // PAGE_SIZE, slot % PAGE_SIZE  # int64: pages x stride passes 2**31 in a large pool
    held = (head < HEADS) & (dim < HEAD_DIM) & (slot >= 0)
    keys = tl.load(k + token * k_strides[0] + head * k_strides[1] + dim, mask=held, other=0.0)
    place = head.to(tl.int64) * k_page_strides[0] + page * k_page_strides[1] + offset * k_page_strides[2]
    tl.store(k_pages + place + dim, keys, mask=held)
    values = tl.load(v + token * v_strides[0] + head * v_strides[1] + dim, mask=held, other=0.0)
    place = head.to(tl.int64) * v_page_strides[0] + page * v_page_strides[1] + offset * v_page_strides[2]
    tl.store(v_pages + place + dim, values, mask=held)


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Compile-time sizes: whole heads, at most a KV head's worth of programs a token, 8 values a thread."""

    block_h: int
    block_d: int
    num_warps: int

    @classmethod
    def of(cls, kv_heads: int, head_dim: int) -> _Tiling:
        block_d = max(16, next_power_of_two(head_dim))
        block_h = min(next_power_of_two(kv_heads), max(1, _TILE // block_d))
        return cls(block_h, block_d, max(1, min(4, block_h * block_d // 256)))


def rope(q: Tensor, k: Tensor, window: Angles, sink: Angles | None) -> tuple[Tensor, Tensor, Tensor]:
    """The queries for the window and for the sinks, and the keys, by the Triton kernel; all contiguous.

    - `q` `[tokens, q_heads, head_dim]`, `k` `[tokens, kv_heads, head_dim]`: float32, float16 or bfloat16, any strides
      with the last dimension contiguous; head_dim at most MAX_HEAD_DIM.
    - `window`: angles of the tokens' own positions. `sink`: angles of their queries against the sinks, None where they
      are the same: then the second result is the first.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    rotary = _check_rope(q, k, window, sink)
    require("rope", "rope_torch", q.device)
    (tokens, q_heads, head_dim), kv_heads = q.shape, k.shape[1]
    q_window, k_turned = q.new_empty(q.shape), k.new_empty(k.shape)
    q_sink = q_window if sink is None else q.new_empty(q.shape)
    against_sinks = window if sink is None else sink
    tiling = _Tiling.of(kv_heads, head_dim)
    with torch.cuda.device_of(q):  # type: ignore[no-untyped-call]
        _rope[(tokens, ceil_div(q_heads, tiling.block_h) + ceil_div(kv_heads, tiling.block_h))](
            q, k, window.cos, window.sin, against_sinks.cos, against_sinks.sin, q_window, q_sink, k_turned,
            q.stride()[:2], k.stride()[:2], Q_HEADS=q_heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, ROTARY=rotary,
            TWO_PHASE=sink is not None, BLOCK_H=tiling.block_h, BLOCK_D=tiling.block_d, num_warps=tiling.num_warps,
        )  # fmt: skip
    return q_window, q_sink, k_turned


def rope_torch(q: Tensor, k: Tensor, window: Angles, sink: Angles | None) -> tuple[Tensor, Tensor, Tensor]:
    """What `rope` does, in plain torch, on any device."""
    _check_rope(q, k, window, sink)
    q_window = _rotated(q, window)
    return q_window, q_window if sink is None else _rotated(q, sink), _rotated(k, window)


def _rotated(x: Tensor, angles: Angles) -> Tensor:
    rotary = angles.cos.shape[1]
    wide = x[..., :rotary].float()
    turned = wide * angles.cos[:, None] + wide.roll(rotary // 2, -1) * angles.sin[:, None]
    return torch.cat((turned.to(x.dtype), x[..., rotary:]), dim=-1)


def store(k: Tensor, v: Tensor, slots: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    """Put keys and values into their slots, by the Triton kernel.

    - `k`, `v` `[tokens, kv_heads, head_dim]`: float32, float16 or bfloat16, any strides with the last dimension
      contiguous; head_dim at most MAX_HEAD_DIM.
    - `slots`: int64 `[tokens]`, contiguous: `page * page_size + offset`, each once; -1 stores nothing (an unused row).
    - `k_pages`, `v_pages`: `[kv_heads, pages, page_size, head_dim]` like k, any strides with the last one 1. Only the
      slots named are written.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    _check_store(k, v, slots, k_pages, v_pages)
    require("store", "store_torch", k.device)
    tokens, kv_heads, head_dim = k.shape
    tiling = _Tiling.of(kv_heads, head_dim)
    with torch.cuda.device_of(k):  # type: ignore[no-untyped-call]
        _store[(tokens, ceil_div(kv_heads, tiling.block_h))](
            k, v, slots, k_pages, v_pages, k.stride()[:2], v.stride()[:2], k_pages.stride()[:3], v_pages.stride()[:3],
            HEADS=kv_heads, HEAD_DIM=head_dim, PAGE_SIZE=k_pages.shape[2], BLOCK_H=tiling.block_h,
            BLOCK_D=tiling.block_d, num_warps=tiling.num_warps,
        )  # fmt: skip


def store_torch(k: Tensor, v: Tensor, slots: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    """What `store` does, in plain torch, on any device."""
    _check_store(k, v, slots, k_pages, v_pages)
    stored = slots >= 0
    pages, offsets = slots[stored] // k_pages.shape[2], slots[stored] % k_pages.shape[2]
    k_pages[:, pages, offsets] = k[stored].transpose(0, 1)
    v_pages[:, pages, offsets] = v[stored].transpose(0, 1)


def _check_rows(name: str, rows: Tensor, heads: str) -> None:
    expect_dims(name, rows, f"[tokens, {heads}, head_dim]")
    expect_float(name, rows)
    if rows.shape[2] > MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {rows.shape[2]}: the kernel serves at most {MAX_HEAD_DIM}")


def _check_rope(q: Tensor, k: Tensor, window: Angles, sink: Angles | None) -> int:
    """Raise ValueError with one sentence about the first argument that does not fit; returns the rotated dimensions."""
    _check_rows("q", q, "q_heads")
    expect_dims("k", k, "[tokens, kv_heads, head_dim]")
    tokens, _, head_dim = q.shape
    for name, tensor in (("q", q), ("k", k)):
        expect(name, tensor, (tokens, tensor.shape[1], head_dim), q.dtype, ("q", q), Layout.ROWS)
    rotary = window.cos.shape[-1]
    if not 0 < rotary <= head_dim or rotary % 2:
        raise ValueError(f"window.cos rotates {rotary} dimensions: expected an even number, at most {head_dim}")
    for name, tensor in (
        ("window.cos", window.cos), ("window.sin", window.sin),
        *([] if sink is None else [("sink.cos", sink.cos), ("sink.sin", sink.sin)]),
    ):  # fmt: skip
        expect(name, tensor, (tokens, rotary), torch.float32, ("q", q), Layout.DENSE)
    return rotary


def _check_store(k: Tensor, v: Tensor, slots: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    """Raise ValueError with one sentence about the first argument that does not fit."""
    _check_rows("k", k, "kv_heads")
    expect_dims("k_pages", k_pages, "[kv_heads, pages, page_size, head_dim]")
    tokens, kv_heads, head_dim = k.shape
    pages = (kv_heads, *k_pages.shape[1:3], head_dim)
    for name, tensor, size in (
        ("k", k, tuple(k.shape)), ("v", v, tuple(k.shape)), ("k_pages", k_pages, pages), ("v_pages", v_pages, pages),
    ):  # fmt: skip
        expect(name, tensor, size, k.dtype, ("k", k), Layout.ROWS)
    expect("slots", slots, (tokens,), torch.int64, ("k", k), Layout.DENSE)


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: whole and partial rotation, one phase and two, and storing."""
    for dtype, q_heads, kv_heads, head_dim, rotary, two_phase in (
        (torch.bfloat16, 9, 3, 64, 64, True), (torch.bfloat16, 32, 8, 128, 128, True),
        (torch.float16, 32, 32, 96, 72, False), (torch.bfloat16, 16, 16, 256, 256, True),
        (torch.float32, 32, 8, 128, 128, True),
    ):  # fmt: skip
        tiling, values = _Tiling.of(kv_heads, head_dim), f"*{FLOATS[dtype]}:16"
        yield CompileCase(
            f"rope {FLOATS[dtype]} heads{q_heads}/{kv_heads} d{head_dim} rotary{rotary}{' sink' * two_phase}", _rope,
            {"q": values, "k": values} | dict.fromkeys(("cos", "sin", "sink_cos", "sink_sin"), "*fp32:16")
            | dict.fromkeys(("q_window", "q_sink", "k_turned"), values)
            | dict.fromkeys(("q_strides", "k_strides"), ("i32:16", "i32:16")),
            {"Q_HEADS": q_heads, "KV_HEADS": kv_heads, "HEAD_DIM": head_dim, "ROTARY": rotary,
             "TWO_PHASE": two_phase, "BLOCK_H": tiling.block_h, "BLOCK_D": tiling.block_d}, tiling.num_warps, 3,
        )  # fmt: skip
    for dtype, kv_heads, head_dim in ((torch.bfloat16, 8, 128), (torch.bfloat16, 3, 64), (torch.float32, 16, 256)):
        tiling, values = _Tiling.of(kv_heads, head_dim), f"*{FLOATS[dtype]}:16"
        yield CompileCase(
            f"store {FLOATS[dtype]} heads{kv_heads} d{head_dim}", _store,
            {"k": values, "v": values, "slots": "*i64:16", "k_pages": values, "v_pages": values}
            | dict.fromkeys(("k_strides", "v_strides"), ("i32:16", "i32:16"))
            | dict.fromkeys(("k_page_strides", "v_page_strides"), ("i32:16", "i32:16", "i32:16")),
            {"HEADS": kv_heads, "HEAD_DIM": head_dim, "PAGE_SIZE": 64, "BLOCK_H": tiling.block_h,
             "BLOCK_D": tiling.block_d}, tiling.num_warps, 3,
        )  # fmt: skip
