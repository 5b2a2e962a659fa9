"""Paged attention of a prompt's chunk: consecutive tokens of one session over their sinks, their ring, and themselves.

Pages, tables and the two-phase query are those of `paged_attention`. The chunk attends before it is stored: its own
keys and values come beside the pages, which still hold what was there before it. So a chunk may write over pages that
its own first tokens see, and may be longer than the ring. Each token has its own window: it sees the sinks from
`sink_start` on, ring positions from `start` on, and of the chunk what is not after it.

FlashAttention (Dao, arXiv 2307.08691): a program takes one tile of rows, which are the queries of all heads that share
a KV head, token after token, so that K and V are read once for all of them. It walks the tiles of the pages and of the
chunk that one of its rows can see. The grid depends on shapes only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.arguments import FLOATS, Layout, expect, expect_dims, expect_float
from kernels.flash import fold_tile
from kernels.runtime import CompileCase, ceil_div, jit, next_power_of_two, require, tl

MAX_HEAD_DIM = 256


@jit
def _fold_pages(
    state: tl.tuple, q: tl.tensor, k_head: tl.tensor, v_head: tl.tensor, k_strides: tl.tuple, v_strides: tl.tuple,
    table: tl.tensor, page_pos: tl.tensor, first: tl.tensor, end: tl.tensor, low: tl.tensor, lowest: tl.tensor,
    limit: tl.tensor, scale: tl.tensor, cap: tl.tensor, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr,
    CAPPED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Fold tiles [first, end) of pages; a row sees positions from its `low` on, and none from `limit` on."""
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    dim = tl.arange(0, BLOCK_D)[None, :]
    for tile in tl.range(first, end):
        page = tl.load(table + tile // TILES).to(tl.int64)  # pages x stride passes 2**31 elements in a large pool
        page_start = tl.load(page_pos + tile // TILES)
        slot = tile % TILES * BLOCK_N + tl.arange(0, BLOCK_N)
        # Positions are 64 bits, slots 32: compared as slots, they take half the registers.
        slots_end = tl.where(page_start < 0, 0, tl.minimum(limit - page_start, PAGE_SIZE)).to(tl.int32)
        low_slot = tl.minimum(low - page_start, PAGE_SIZE).to(tl.int32)
        lowest_slot = tl.minimum(lowest - page_start, PAGE_SIZE).to(tl.int32)
        held = slot < slots_end
        seen = (slot[None, :] >= low_slot[:, None]) & held[None, :]
        read = (held & (slot >= lowest_slot))[:, None] & (dim < HEAD_DIM)
        state = fold_tile(
            state, q, k_head + page * k_strides[1] + slot[:, None] * k_strides[2] + dim,
            v_head + page * v_strides[1] + slot[:, None] * v_strides[2] + dim, read, seen, scale, cap, CAPPED,
        )  # fmt: skip
    return state


@jit
def _fold_chunk(
    state: tl.tuple, q: tl.tensor, k_head: tl.tensor, v_head: tl.tensor, k_stride: tl.tensor, v_stride: tl.tensor,
    token: tl.tensor, low: tl.tensor, lowest: tl.tensor, end: tl.tensor, scale: tl.tensor, cap: tl.tensor,
    HEAD_DIM: tl.constexpr, CAPPED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Fold the chunk's own keys [lowest, end); a row sees from its `low` on to its own token."""
    dim = tl.arange(0, BLOCK_D)[None, :]
    for tile in tl.range(lowest // BLOCK_N, tl.cdiv(end, BLOCK_N)):
        key = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        seen = (key[None, :] >= low[:, None]) & (key[None, :] <= token[:, None])
        read = ((key >= lowest) & (key < end))[:, None] & (dim < HEAD_DIM)
        row = key.to(tl.int64)[:, None]
        state = fold_tile(
            state, q, k_head + row * k_stride + dim, v_head + row * v_stride + dim, read, seen, scale, cap, CAPPED
        )
    return state


@jit
def _prefill(
    q_window: tl.tensor, q_sink: tl.tensor, k: tl.tensor, v: tl.tensor, k_pages: tl.tensor, v_pages: tl.tensor,
    page_table: tl.tensor, page_pos: tl.tensor, sink_tokens: tl.tensor, sink_start: tl.tensor, start: tl.tensor,
    position: tl.tensor, out: tl.tensor, tokens: tl.tensor, table_len: tl.tensor, scale: tl.tensor, cap: tl.tensor,
    k_strides: tl.tuple, v_strides: tl.tuple, k_page_strides: tl.tuple, v_page_strides: tl.tuple,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, CAPPED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
) -> None:  # fmt: skip
    """BLOCK_M rows of one KV head; row r is query head `r % GROUP` of the chunk's token `r // GROUP`."""
    kv_head = tl.program_id(1).to(tl.int64)
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    sinks, first = tl.load(sink_tokens), tl.load(position)
    row, dim = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)[None, :]
    token = row // GROUP
    held_row = token < tokens
    # A row of no token begins to see where no position is.
    ring_low = tl.load(start + token, mask=held_row, other=1 << 62)
    sink_low = tl.load(sink_start + token, mask=held_row, other=1 << 62)
    head = kv_head * GROUP + row % GROUP
    offset = (token.to(tl.int64) * tl.num_programs(1) * GROUP + head)[:, None] * HEAD_DIM + dim
    held = held_row[:, None] & (dim < HEAD_DIM)

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    state = (row_max, tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, BLOCK_D], tl.float32))
    q = tl.load(q_sink + offset, mask=held, other=0.0)
    k_head, v_head = k_pages + kv_head * k_page_strides[0], v_pages + kv_head * v_page_strides[0]
    lowest, sinks_held = tl.min(sink_low), tl.minimum(sinks, first)
    state = _fold_pages(
        state, q, k_head, v_head, k_page_strides, v_page_strides, page_table, page_pos,
        (tl.minimum(lowest, sinks_held) // BLOCK_N).to(tl.int32), tl.cdiv(sinks_held, BLOCK_N).to(tl.int32),
        sink_low, lowest, sinks_held, scale, cap, HEAD_DIM, PAGE_SIZE, CAPPED, BLOCK_N, BLOCK_D,
    )  # fmt: skip

    q = tl.load(q_window + offset, mask=held, other=0.0)
    ring_first = tl.cdiv(sinks, PAGE_SIZE)
    ring_end = tl.minimum(ring_first + tl.cdiv(tl.maximum(first - sinks, 0), PAGE_SIZE), table_len)
    state = _fold_pages(
        state, q, k_head, v_head, k_page_strides, v_page_strides, page_table, page_pos,
        (ring_first * TILES).to(tl.int32), (ring_end * TILES).to(tl.int32),
        ring_low, tl.min(ring_low), first, scale, cap, HEAD_DIM, PAGE_SIZE, CAPPED, BLOCK_N, BLOCK_D,
    )  # fmt: skip

    own_low = tl.minimum(tl.maximum(tl.where(first < sinks, sink_low, ring_low) - first, 0), tokens).to(tl.int32)
    row_max, row_sum, acc = _fold_chunk(
        state, q, k + kv_head * k_strides[1], v + kv_head * v_strides[1], k_strides[0], v_strides[0], token, own_low,
        tl.min(own_low), tl.minimum(tl.max(token) + 1, tokens), scale, cap, HEAD_DIM, CAPPED, BLOCK_N, BLOCK_D,
    )  # fmt: skip
    acc = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    tl.store(out + offset, acc.to(out.dtype.element_ty), mask=held)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The sizes of one call, taken from its arguments once they are checked."""

    tokens: int
    q_heads: int
    kv_heads: int
    page_size: int
    head_dim: int
    table_len: int

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.q_heads // self.kv_heads


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Compile-time sizes of `_prefill`; a pure function of shapes, so one engine compiles once."""

    block_m: int
    block_n: int
    block_d: int
    num_warps: int
    num_stages: int

    @classmethod
    def of(cls, head_dim: int, page_size: int, element_size: int) -> _Tiling:
        """Tiles of keys of at most a page, so that one table read serves a tile. On all but sm_90 and sm_100 a thread
        holds the operands of a product in its own registers: 64 rows by 32 keys of 128 values spill on sm_120 with 4
        warps and take 207 registers with 8; 64 keys spill with either. float32 has no tensor cores."""
        block_d = max(16, next_power_of_two(head_dim))
        if block_d > 128:
            return cls(16 if element_size == 4 else 32, 16, block_d, 4, 2)
        if element_size == 4:
            return cls(32, 16, block_d, 4, 2)
        return cls(64, min(page_size, 32), block_d, 4 if block_d <= 64 else 8, 3 if block_d <= 64 else 2)


def paged_prefill(
    q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor,
    page_pos: Tensor, sink_tokens: Tensor, start: Tensor, position: Tensor, *, sink_start: Tensor | None = None,
    scale: float | None = None, cap: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention of consecutive tokens of one session, by the Triton kernel; `[tokens, q_heads, head_dim]`.

    - `q_window`, `q_sink`: `[tokens, q_heads, head_dim]`, contiguous, rotated for ring keys and for sink keys.
    - `k`, `v`: the chunk's own, `[tokens, kv_heads, head_dim]`, any strides with the last dimension contiguous.
    - `k_pages`, `v_pages`: `[kv_heads, pages, page_size, head_dim]` as in `paged_decode`; they are only read.
    - `page_table` int32 and `page_pos` int64: `[table_len]`, the session's, as they were before the chunk. Ring pages
      that no token of the chunk sees may be left out where a chat is longer than a layer's own window.
    - `sink_tokens`, `position`: int64 `[1]`: S, and the position of the first token. All tokens are sinks, or none is.
    - `start`, and `sink_start` (0 unless given): int64 `[tokens]`: what each token sees begins there.
    - `scale`, `cap`: as in `paged_decode`.

    Slots that no token of the chunk sees are never read, whatever they hold. Raises ValueError naming the argument
    that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    sink_start = torch.zeros_like(start) if sink_start is None else sink_start
    shape = _check(q_window, q_sink, k, v, k_pages, v_pages, page_table, page_pos, sink_tokens, start, position)
    expect("sink_start", sink_start, (shape.tokens,), torch.int64, ("q_window", q_window), Layout.DENSE)
    if shape.page_size < 16 or shape.page_size & (shape.page_size - 1) or shape.head_dim > MAX_HEAD_DIM:
        raise ValueError(
            f"page_size is {shape.page_size} and head_dim {shape.head_dim}: the kernel needs a power of two, at least "
            f"16, and at most {MAX_HEAD_DIM}"
        )
    require("paged_prefill", "paged_prefill_torch", q_window.device)
    tiling = _Tiling.of(shape.head_dim, shape.page_size, k.element_size())
    out = torch.empty_like(q_window)
    scale = (shape.head_dim**-0.5 if scale is None else scale) * math.log2(math.e)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _prefill[(ceil_div(shape.tokens * shape.group, tiling.block_m), shape.kv_heads)](
            q_window, q_sink, k, v, k_pages, v_pages, page_table, page_pos, sink_tokens, sink_start, start, position,
            out, shape.tokens, shape.table_len, scale if cap is None else 2 * scale / cap,
            (cap or 0.0) * math.log2(math.e), k.stride()[:2], v.stride()[:2], k_pages.stride()[:3],
            v_pages.stride()[:3], GROUP=shape.group, HEAD_DIM=shape.head_dim, PAGE_SIZE=shape.page_size,
            CAPPED=cap is not None, BLOCK_M=tiling.block_m, BLOCK_N=tiling.block_n, BLOCK_D=tiling.block_d,
            num_warps=tiling.num_warps, num_stages=tiling.num_stages,
        )  # fmt: skip
    return out


def paged_prefill_torch(
    q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor,
    page_pos: Tensor, sink_tokens: Tensor, start: Tensor, position: Tensor, *, sink_start: Tensor | None = None,
    scale: float | None = None, cap: float | None = None,
) -> Tensor:  # fmt: skip
    """What `paged_prefill` computes, in plain torch and float32, on any device and for any page size.

    It gathers the slots that some token of the chunk sees and reads no other.
    """
    sink_start = torch.zeros_like(start) if sink_start is None else sink_start
    shape = _check(q_window, q_sink, k, v, k_pages, v_pages, page_table, page_pos, sink_tokens, start, position)
    scale = shape.head_dim**-0.5 if scale is None else scale
    sinks, first = int(sink_tokens), int(position)
    entry = torch.arange(shape.table_len, device=k.device)
    in_sink_page = (entry < ceil_div(sinks, shape.page_size))[:, None]
    held_at = page_pos[:, None] + torch.arange(shape.page_size, device=k.device)
    held = (page_pos >= 0)[:, None] & (held_at < first) & (~in_sink_page | (held_at < sinks))
    low = torch.where(in_sink_page, sink_start[:, None, None], start[:, None, None])
    seen = held & (held_at >= low)
    entries, slots = seen.any(0).nonzero(as_tuple=True)

    own = first + torch.arange(shape.tokens, device=k.device)
    own_seen = (own <= own[:, None]) & (own >= torch.where(own < sinks, sink_start[:, None], start[:, None]))
    keys, values = (
        torch.cat((pages[:, page_table[entries].long(), slots], new.transpose(0, 1)), dim=1).float()
        for pages, new in ((k_pages, k), (v_pages, v))
    )
    by_sink = torch.cat((in_sink_page[entries, 0], torch.zeros_like(own, dtype=torch.bool)))
    visible = torch.cat((seen[:, entries, slots], own_seen), dim=1)
    grouped = (shape.tokens, shape.kv_heads, shape.group, shape.head_dim)
    window, sink = (q.float().view(grouped).permute(1, 2, 0, 3) @ keys[:, None].mT for q in (q_window, q_sink))
    scores = torch.where(by_sink, sink, window) * scale
    scores = scores if cap is None else torch.tanh(scores / cap) * cap
    mixed = scores.masked_fill(~visible, float("-inf")).softmax(-1) @ values[:, None]
    return mixed.permute(2, 0, 1, 3).reshape(q_window.shape).to(q_window.dtype)


def _check(
    q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor,
    page_pos: Tensor, sink_tokens: Tensor, start: Tensor, position: Tensor,
) -> _Shape:  # fmt: skip
    """Raise ValueError with one sentence about the first argument that does not fit; looks at no values."""
    expect_dims("q_window", q_window, "[tokens, q_heads, head_dim]")
    expect_dims("k_pages", k_pages, "[kv_heads, pages, page_size, head_dim]")
    expect_dims("page_table", page_table, "[table_len]")
    expect_float("q_window", q_window)
    tokens, q_heads, head_dim = q_window.shape
    kv_heads, _, page_size, _ = k_pages.shape
    if q_heads % kv_heads:
        raise ValueError(f"q_window has {q_heads} heads: expected a multiple of the {kv_heads} heads of k_pages")
    table_len, same = page_table.shape[0], q_window.dtype
    pages, own = (*k_pages.shape[:3], head_dim), (tokens, kv_heads, head_dim)
    for name, tensor, size, dtype, layout in (
        ("q_window", q_window, tuple(q_window.shape), same, Layout.DENSE),
        ("q_sink", q_sink, tuple(q_window.shape), same, Layout.DENSE),
        ("k", k, own, same, Layout.ROWS),
        ("v", v, own, same, Layout.ROWS),
        ("k_pages", k_pages, pages, same, Layout.ROWS),
        ("v_pages", v_pages, pages, same, Layout.ROWS),
        ("page_table", page_table, (table_len,), torch.int32, Layout.DENSE),
        ("page_pos", page_pos, (table_len,), torch.int64, Layout.DENSE),
        ("sink_tokens", sink_tokens, (1,), torch.int64, Layout.DENSE),
        ("start", start, (tokens,), torch.int64, Layout.DENSE),
        ("position", position, (1,), torch.int64, Layout.DENSE),
    ):
        expect(name, tensor, size, dtype, ("q_window", q_window), layout)
    return _Shape(tokens, q_heads, kv_heads, page_size, head_dim, table_len)


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: the three types, every head size and page size."""
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    for dtype, head_dim, page_size, group, capped in (
        (bf16, 64, 32, 3, False), (bf16, 80, 32, 1, False), (fp16, 128, 64, 4, False), (bf16, 128, 16, 4, True),
        (bf16, 256, 64, 2, True), (fp32, 64, 32, 3, False), (fp32, 256, 64, 2, True),
    ):  # fmt: skip
        tiling, values = _Tiling.of(head_dim, page_size, dtype.itemsize), f"*{FLOATS[dtype]}:16"
        yield CompileCase(
            f"prefill {FLOATS[dtype]} d{head_dim} page{page_size} group{group}{' capped' * capped}", _prefill,
            dict.fromkeys(("q_window", "q_sink", "k", "v", "k_pages", "v_pages"), values)
            | {"page_table": "*i32:16"}
            | dict.fromkeys(("page_pos", "sink_tokens", "sink_start", "start", "position"), "*i64:16")
            | {"out": values, "tokens": "i32", "table_len": "i32", "scale": "fp32", "cap": "fp32"}
            | dict.fromkeys(("k_strides", "v_strides"), ("i32:16", "i32:16"))
            | dict.fromkeys(("k_page_strides", "v_page_strides"), ("i32:16", "i32:16", "i32:16")),
            {"GROUP": group, "HEAD_DIM": head_dim, "PAGE_SIZE": page_size, "CAPPED": capped,
             "BLOCK_M": tiling.block_m, "BLOCK_N": tiling.block_n, "BLOCK_D": tiling.block_d},
            tiling.num_warps, tiling.num_stages,
        )  # fmt: skip
