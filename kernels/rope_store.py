"""Rotary embedding (RoFormer, arXiv 2104.09864) of new queries and keys, and K and V into their page slots.

One pass over what the stacked projection gave: each query is rotated for the window and, where its chat has evicted
something, a second time for the sinks (see `paged_attention`); each key is rotated once and stored with its value.
Angles come as rows of cosines and sines, computed in float64 on the host: here they are only multiplied. The halves of
what is rotated are paired, cosines stand in a row twice and the first half's sines are negated, so that value i becomes
`x[i] * cos[i] + x[partner of i] * sin[i]`. Dimensions after those that have angles stay as they are; with no angles at
all, as in layers without positions, everything does.
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
def _rows(row: tl.tensor, dim: tl.tensor, held: tl.tensor, ROTARY: tl.constexpr) -> tl.tuple:
    """Rows and what their values are paired with, float32. The pairs are read beside the rows, from the same cache
    lines: nothing is shuffled between threads."""
    partner = tl.where(dim < ROTARY // 2, dim + ROTARY // 2, dim - ROTARY // 2)
    x = tl.load(row + dim, mask=held, other=0.0)
    paired = tl.load(row + partner, mask=held & (dim < ROTARY), other=0.0)
    return x.to(tl.float32), paired.to(tl.float32)


@jit
def _rotate_queries(
    q: tl.tensor, cos: tl.tensor, sin: tl.tensor, sink_cos: tl.tensor, sink_sin: tl.tensor, q_window: tl.tensor,
    q_sink: tl.tensor, token: tl.tensor, head: tl.tensor, dim: tl.tensor, q_strides: tl.tuple, HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr, TWO_PHASE: tl.constexpr,
) -> None:  # fmt: skip
    """The queries of some heads of a token, for the window and for the sinks."""
    held = (head < HEADS) & (dim < HEAD_DIM)
    x, paired = _rows(q + token * q_strides[0] + head * q_strides[1], dim, held, ROTARY)
    offset = (token * HEADS + head) * HEAD_DIM + dim
    turned = _turned(x, paired, cos, sin, token, dim, ROTARY)
    tl.store(q_window + offset, turned.to(q_window.dtype.element_ty), mask=held)
    if TWO_PHASE:
        turned = _turned(x, paired, sink_cos, sink_sin, token, dim, ROTARY)
        tl.store(q_sink + offset, turned.to(q_sink.dtype.element_ty), mask=held)


@jit
def _store_keys_values(
    k: tl.tensor, v: tl.tensor, cos: tl.tensor, sin: tl.tensor, slots: tl.tensor, k_pages: tl.tensor,
    v_pages: tl.tensor, token: tl.tensor, head: tl.tensor, dim: tl.tensor, k_strides: tl.tuple, v_strides: tl.tuple,
    k_page_strides: tl.tuple, v_page_strides: tl.tuple, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr, ROTARY: tl.constexpr,
) -> None:  # fmt: skip
    """The keys, rotated, and the values of some heads of a token, into their slot."""
    slot = tl.load(slots + token)
    page, offset = slot // PAGE_SIZE, slot % PAGE_SIZE  # int64: pages x stride passes 2**31 in a large pool
    held = (head < HEADS) & (dim < HEAD_DIM) & (slot >= 0)
    x, paired = _rows(k + token * k_strides[0] + head * k_strides[1], dim, held, ROTARY)
    turned = _turned(x, paired, cos, sin, token, dim, ROTARY)
    place = head.to(tl.int64) * k_page_strides[0] + page * k_page_strides[1] + offset * k_page_strides[2]
    tl.store(k_pages + place + dim, turned.to(k_pages.dtype.element_ty), mask=held)
    values = tl.load(v + token * v_strides[0] + head * v_strides[1] + dim, mask=held, other=0.0)
    place = head.to(tl.int64) * v_page_strides[0] + page * v_page_strides[1] + offset * v_page_strides[2]
    tl.store(v_pages + place + dim, values, mask=held)


@jit
def _rope_store(
    q: tl.tensor, k: tl.tensor, v: tl.tensor, cos: tl.tensor, sin: tl.tensor, sink_cos: tl.tensor, sink_sin: tl.tensor,
    slots: tl.tensor, q_window: tl.tensor, q_sink: tl.tensor, k_pages: tl.tensor, v_pages: tl.tensor,
    q_strides: tl.tuple, k_strides: tl.tuple, v_strides: tl.tuple, k_page_strides: tl.tuple, v_page_strides: tl.tuple,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr,
    ROTARY: tl.constexpr, TWO_PHASE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
) -> None:  # fmt: skip
    """BLOCK_H heads of one token: the first programs take its queries, the others its keys and values."""
    Q_BLOCKS: tl.constexpr = (Q_HEADS + BLOCK_H - 1) // BLOCK_H
    token, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head = tl.arange(0, BLOCK_H)[:, None]
    dim = tl.arange(0, BLOCK_D)[None, :]
    if block < Q_BLOCKS:
        _rotate_queries(
            q, cos, sin, sink_cos, sink_sin, q_window, q_sink, token, block * BLOCK_H + head, dim, q_strides,
            Q_HEADS, HEAD_DIM, ROTARY, TWO_PHASE,
        )  # fmt: skip
    else:
        _store_keys_values(
            k, v, cos, sin, slots, k_pages, v_pages, token, (block - Q_BLOCKS) * BLOCK_H + head, dim, k_strides,
            v_strides, k_page_strides, v_page_strides, KV_HEADS, HEAD_DIM, PAGE_SIZE, ROTARY,
        )  # fmt: skip


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


def rope_store(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Angles | None,
    sink: Angles | None,
    slots: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
) -> tuple[Tensor, Tensor]:
    """Rotate, store, and return the queries for the window and for the sinks, by the Triton kernel.

    - `q` `[tokens, q_heads, head_dim]`, `k`, `v` `[tokens, kv_heads, head_dim]`: float32, float16 or bfloat16, any
      strides with the last dimension contiguous; head_dim at most MAX_HEAD_DIM.
    - `window`: angles of the tokens' own positions, None where nothing is rotated. `sink`: angles of their queries
      against the sinks, None where they are the same: then the second result is the first.
    - `slots`: int64 `[tokens]`, contiguous: `page * page_size + offset`, each once; -1 stores nothing (an unused row).
    - `k_pages`, `v_pages`: `[kv_heads, pages, page_size, head_dim]` like k, any strides with the last one 1. Only the
      slots named are written.

    Raises ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    rotary = _check(q, k, v, window, sink, slots, k_pages, v_pages)
    require("rope_store", "rope_store_torch", q.device)
    tokens, q_heads, head_dim = q.shape
    kv_heads, page_size = k.shape[1], k_pages.shape[2]
    q_window = q.new_empty(q.shape)
    q_sink = q_window if sink is None else q.new_empty(q.shape)
    tiling = _Tiling.of(kv_heads, head_dim)
    unused = q_window  # where a pointer is wanted that nothing is read from
    cos, sin = (unused, unused) if window is None else (window.cos, window.sin)
    sink_cos, sink_sin = (unused, unused) if sink is None else (sink.cos, sink.sin)
    if tokens:
        with torch.cuda.device_of(q):  # type: ignore[no-untyped-call]
            _rope_store[(tokens, ceil_div(q_heads, tiling.block_h) + ceil_div(kv_heads, tiling.block_h))](
                q, k, v, cos, sin, sink_cos, sink_sin, slots, q_window, q_sink, k_pages, v_pages,
                q.stride()[:2], k.stride()[:2], v.stride()[:2], k_pages.stride()[:3], v_pages.stride()[:3],
                Q_HEADS=q_heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim, PAGE_SIZE=page_size, ROTARY=rotary,
                TWO_PHASE=sink is not None, BLOCK_H=tiling.block_h, BLOCK_D=tiling.block_d,
                num_warps=tiling.num_warps,
            )  # fmt: skip
    return q_window, q_sink


def store(k: Tensor, v: Tensor, slots: Tensor, k_pages: Tensor, v_pages: Tensor) -> None:
    """Put keys that are rotated already, and values, into their slots, by the Triton kernel. Arguments and errors are
    those of `rope_store`: a prompt's chunk attends before it stores, since it may write over what its first tokens
    still see."""
    rope_store(k[:, :0], k, v, None, None, slots, k_pages, v_pages)


def rope_store_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Angles | None,
    sink: Angles | None,
    slots: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
) -> tuple[Tensor, Tensor]:
    """What `rope_store` does, in plain torch, on any device and for any head size."""
    _check(q, k, v, window, sink, slots, k_pages, v_pages)
    q_window = _rotated(q, window)
    stored = slots >= 0
    pages, offsets = slots[stored] // k_pages.shape[2], slots[stored] % k_pages.shape[2]
    k_pages[:, pages, offsets] = _rotated(k, window)[stored].transpose(0, 1)
    v_pages[:, pages, offsets] = v[stored].transpose(0, 1)
    return q_window, q_window if sink is None else _rotated(q, sink)


def _rotated(x: Tensor, angles: Angles | None) -> Tensor:
    if angles is None:
        return x.contiguous()
    rotary = angles.cos.shape[1]
    wide = x[..., :rotary].float()
    turned = wide * angles.cos[:, None] + wide.roll(rotary // 2, -1) * angles.sin[:, None]
    return torch.cat((turned.to(x.dtype), x[..., rotary:]), dim=-1)


def _check(
    q: Tensor, k: Tensor, v: Tensor, window: Angles | None, sink: Angles | None, slots: Tensor, k_pages: Tensor,
    v_pages: Tensor,
) -> int:  # fmt: skip
    """Raise ValueError with one sentence about the first argument that does not fit; returns the rotated dimensions."""
    expect_dims("k", k[:1] if len(k) else k.new_empty((1, *k.shape[1:])), "[tokens, kv_heads, head_dim]")
    expect_dims("k_pages", k_pages, "[kv_heads, pages, page_size, head_dim]")
    expect_float("k", k)
    tokens, kv_heads, head_dim = k.shape
    if head_dim > MAX_HEAD_DIM:
        raise ValueError(f"head_dim is {head_dim}: the kernel serves at most {MAX_HEAD_DIM}")
    if q.ndim != 3:
        raise ValueError(f"q has shape {tuple(q.shape)}: expected [tokens, q_heads, head_dim]")
    pages = (kv_heads, *k_pages.shape[1:3], head_dim)
    for name, tensor, size in (
        ("q", q, (tokens, q.shape[1], head_dim)), ("k", k, (tokens, kv_heads, head_dim)),
        ("v", v, (tokens, kv_heads, head_dim)), ("k_pages", k_pages, pages), ("v_pages", v_pages, pages),
    ):  # fmt: skip
        expect(name, tensor, size, k.dtype, ("k", k), Layout.ROWS)
    expect("slots", slots, (tokens,), torch.int64, ("k", k), Layout.DENSE)
    if window is None:
        if sink is not None:
            raise ValueError("there are angles for sinks and none for the window: a layer rotates both or neither")
        return 0
    rotary = window.cos.shape[-1]
    if not 0 < rotary <= head_dim or rotary % 2:
        raise ValueError(f"window.cos rotates {rotary} dimensions: expected an even number, at most {head_dim}")
    for name, tensor in (
        ("window.cos", window.cos), ("window.sin", window.sin),
        *([] if sink is None else [("sink.cos", sink.cos), ("sink.sin", sink.sin)]),
    ):  # fmt: skip
        expect(name, tensor, (tokens, rotary), torch.float32, ("k", k), Layout.DENSE)
    return rotary


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: whole, partial and no rotation, one phase and two, and storing only."""
    for dtype, q_heads, kv_heads, head_dim, rotary, two_phase in (
        (torch.bfloat16, 9, 3, 64, 64, True), (torch.bfloat16, 32, 8, 128, 128, True),
        (torch.float16, 32, 32, 96, 72, False), (torch.bfloat16, 16, 16, 256, 256, True),
        (torch.bfloat16, 16, 4, 128, 0, False), (torch.bfloat16, 0, 8, 128, 0, False),
        (torch.float32, 32, 8, 128, 128, True),
    ):  # fmt: skip
        tiling, values = _Tiling.of(kv_heads, head_dim), f"*{FLOATS[dtype]}:16"
        angles = "*fp32:16" if rotary else values
        sink = "*fp32:16" if two_phase else values
        yield CompileCase(
            f"rope_store {FLOATS[dtype]} heads{q_heads}/{kv_heads} d{head_dim} rotary{rotary}{' sink' * two_phase}",
            _rope_store,
            {"q": values, "k": values, "v": values, "cos": angles, "sin": angles, "sink_cos": sink, "sink_sin": sink}
            | {"slots": "*i64:16"}
            | dict.fromkeys(("q_window", "q_sink", "k_pages", "v_pages"), values)
            | dict.fromkeys(("q_strides", "k_strides", "v_strides"), ("i32:16", "i32:16"))
            | dict.fromkeys(("k_page_strides", "v_page_strides"), ("i32:16", "i32:16", "i32:16")),
            {"Q_HEADS": q_heads, "KV_HEADS": kv_heads, "HEAD_DIM": head_dim, "PAGE_SIZE": 64, "ROTARY": rotary,
             "TWO_PHASE": two_phase, "BLOCK_H": tiling.block_h, "BLOCK_D": tiling.block_d},
            tiling.num_warps, 3,
        )  # fmt: skip
