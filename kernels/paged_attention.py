"""Paged decode attention: one query token a session over its sink pages and its ring pages.

The cache of one layer is `[kv_heads, pages, page_size, head_dim]` for K and for V. A session owns a row of the page
table: first ceil(S / page_size) sink pages, which hold positions [0, S) (the last may be partly filled), then the ring
pages; position t >= S lies in ring page `((t - S) // page_size) % R`. `page_pos` says at which position each page now
begins, -1 for none. The token at t sees [0, S) and [start, t]; a token at t < S sees [0, t].

Two-phase query: a stored key is rotated once, at its own position. Ring keys are scored with `q_window`, rotated at t;
sink keys with `q_sink`, rotated at `t - (start - S)`, so that their distances are those of StreamingLLM's positions
inside the cache (arXiv 2309.17453). Softmax runs over both together.

The kernel is split-KV flash decoding (see `flash`): a program takes every SPLITS-th tile of one session and KV
head, the query heads of that KV head stand in the rows of one tile so that K and V are read once, and a second kernel
merges the splits. The grid depends on shapes only; positions are read on the device, so a CUDA graph captures it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.arguments import FLOATS, Layout, expect, expect_dims, expect_float
from kernels.flash import MAX_SPLITS, attended_torch, fold_pages, merge_splits, visible_torch
from kernels.runtime import CompileCase, ceil_div, jit, next_power_of_two, require, tl

MAX_GROUP = 16
"""Query heads a KV head: the rows of the smallest tensor-core tile. With 32 rows and head_dim 256 sm_90 spills."""
MAX_HEAD_DIM = 256
_TILE_BYTES = 8 * 1024
"""Of K, and of V. Compiled for head_dim 128 that is 69 to 88 registers and 37 KB of shared memory, so two programs fit
on every target; 16 KB tiles take 90 to 141 registers and 70 KB, which leaves room for one on sm_86, 89 and 120."""


@jit
def _decode_split(
    q_window: tl.tensor, q_sink: tl.tensor, k_pages: tl.tensor, v_pages: tl.tensor, page_table: tl.tensor,
    page_pos: tl.tensor, sink_tokens: tl.tensor, sink_start: tl.tensor, start: tl.tensor, position: tl.tensor,
    out: tl.tensor, out_lse: tl.tensor, table_len: tl.tensor, scale: tl.tensor, cap: tl.tensor, k_strides: tl.tuple,
    v_strides: tl.tuple, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr,
    SPLITS: tl.constexpr, CAPPED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
) -> None:  # fmt: skip
    """One split of one session and KV head: its normalised output and the log2 of its softmax sum."""
    split, kv_head, session = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    sinks, t = tl.load(sink_tokens + session), tl.load(position + session)
    table, starts = page_table + session * table_len, page_pos + session * table_len
    k_head, v_head = k_pages + kv_head * k_strides[0], v_pages + kv_head * v_strides[0]

    row, dim = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    q_row = (session * tl.num_programs(1) + kv_head) * GROUP + row
    held = (row < GROUP)[:, None] & (dim < HEAD_DIM)[None, :]
    q_offset = q_row[:, None] * HEAD_DIM + dim[None, :]

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    state = (row_max, tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, BLOCK_D], tl.float32))
    # Cost follows what the token sees, not the quota: pages behind the newest position are not walked.
    sinks_seen = tl.maximum(tl.minimum(sinks, t + 1), 0)
    sink_tiles = tl.cdiv(sinks_seen, BLOCK_N).to(tl.int32)
    q = tl.load(q_sink + q_offset, mask=held, other=0.0)
    state = fold_pages(
        state, q, k_head, v_head, k_strides, v_strides, table, starts, split, sink_tiles,
        tl.load(sink_start + session), sinks_seen - 1, scale, cap, HEAD_DIM, PAGE_SIZE, SPLITS, CAPPED, BLOCK_N,
        BLOCK_D,
    )  # fmt: skip
    ring_first = tl.cdiv(sinks, PAGE_SIZE).to(tl.int32)
    ring_pages = tl.cdiv(tl.maximum(t + 1 - sinks, 0), PAGE_SIZE)
    ring_end = tl.minimum(ring_first + ring_pages, table_len).to(tl.int32)
    q = tl.load(q_window + q_offset, mask=held, other=0.0)
    row_max, row_sum, acc = fold_pages(
        state, q, k_head, v_head, k_strides, v_strides, table, starts, ring_first * TILES + split,
        ring_end * TILES, tl.load(start + session), t, scale, cap, HEAD_DIM, PAGE_SIZE, SPLITS, CAPPED, BLOCK_N,
        BLOCK_D,
    )  # fmt: skip

    empty = row_sum == 0.0
    total = tl.where(empty, 1.0, row_sum)
    acc = acc / total[:, None]
    part = q_row * SPLITS + split
    tl.store(out + part[:, None] * HEAD_DIM + dim[None, :], acc.to(out.dtype.element_ty), mask=held)
    if SPLITS > 1:
        lse = tl.where(empty, float("-inf"), row_max + tl.log2(total))
        tl.store(out_lse + part, lse, mask=row < GROUP)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The sizes of one call, taken from its arguments once they are checked."""

    sessions: int
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
    """Compile-time sizes of `_decode_split`; a pure function of shapes, so one engine compiles once."""

    block_n: int
    block_d: int
    num_warps: int = 4
    num_stages: int = 5
    """Two tiles in flight. K and V wait for the page table read of their tile, which takes every second stage: with 3
    the compiler keeps one buffer and asks for the next tile only after this one is used up."""

    @classmethod
    def of(cls, head_dim: int, page_size: int, element_size: int) -> _Tiling:
        """Tiles of at most a page, so that one table read serves a tile; at least the 16 that tensor cores need."""
        block_d = next_power_of_two(head_dim)
        block_n = max(16, min(page_size, 64, _TILE_BYTES // (block_d * element_size)))
        return cls(block_n, block_d)


def paged_decode(
    q_window: Tensor,
    q_sink: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    page_pos: Tensor,
    sink_tokens: Tensor,
    start: Tensor,
    position: Tensor,
    *,
    sink_start: Tensor | None = None,
    scale: float | None = None,
    cap: float | None = None,
    splits: int = 1,
) -> Tensor:
    """Attention of one token a session over its pages, by the Triton kernel; `[sessions, q_heads, head_dim]`.

    - `q_window`, `q_sink`: `[sessions, q_heads, head_dim]`, contiguous, rotated for ring keys and for sink keys.
    - `k_pages`, `v_pages`: `[kv_heads, pages, page_size, head_dim]`, any strides with the last dimension contiguous;
      float32, float16 or bfloat16 like q. page_size is a power of two, at least 16; head_dim at most MAX_HEAD_DIM;
      q_heads a multiple of kv_heads, at most MAX_GROUP times as many.
    - `page_table` int32 and `page_pos` int64: `[sessions, table_len]`, contiguous, as the module's docstring says.
      A row shorter than table_len is padded with page_pos -1.
    - `sink_tokens`, `start`, `position`: int64 `[sessions]`: S, the first visible ring position (>= S), and t.
      A row with position -1 is unused, as in a graph captured for more sessions: its output is 0.
    - `sink_start`: int64 `[sessions]`, the first sink that is seen (in a layer with a native window); 0 unless given.
    - `scale`: factor on the scores, head_dim ** -0.5 unless given. `cap`: the soft cap, cap * tanh(score / cap), of
      Gemma 2. `splits`: programs a session and KV head, at most MAX_SPLITS; see `decode_splits`.

    Slots that the token does not see are never read, whatever they hold. Raises ValueError naming the argument that is
    wrong, and KernelUnavailableError on a device without the kernel.
    """
    sink_start = torch.zeros_like(start) if sink_start is None else sink_start
    shape = _check(q_window, q_sink, k_pages, v_pages, page_table, page_pos, sink_tokens, sink_start, start, position)
    _check_served(shape, splits)
    require("paged_decode", "paged_decode_torch", q_window.device)

    tiling = _Tiling.of(shape.head_dim, shape.page_size, k_pages.element_size())
    out = torch.empty_like(q_window)
    partial, lse, rows = out, out, shape.sessions * shape.q_heads
    if splits > 1:
        partial = out.new_empty((rows, splits, shape.head_dim), dtype=torch.float32)
        lse = out.new_empty((rows, splits), dtype=torch.float32)
    scale = (shape.head_dim**-0.5 if scale is None else scale) * math.log2(math.e)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _decode_split[(splits, shape.kv_heads, shape.sessions)](
            q_window, q_sink, k_pages, v_pages, page_table, page_pos, sink_tokens, sink_start, start, position,
            partial, lse, shape.table_len, scale if cap is None else 2 * scale / cap, (cap or 0.0) * math.log2(math.e),
            k_pages.stride()[:3], v_pages.stride()[:3],
            GROUP=shape.group, HEAD_DIM=shape.head_dim, PAGE_SIZE=shape.page_size, SPLITS=splits,
            CAPPED=cap is not None, BLOCK_M=MAX_GROUP, BLOCK_N=tiling.block_n, BLOCK_D=tiling.block_d,
            num_warps=tiling.num_warps, num_stages=tiling.num_stages,
        )  # fmt: skip
        if splits > 1:
            merge_splits(partial, lse, out)
    return out


def paged_decode_torch(
    q_window: Tensor,
    q_sink: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    page_pos: Tensor,
    sink_tokens: Tensor,
    start: Tensor,
    position: Tensor,
    *,
    sink_start: Tensor | None = None,
    scale: float | None = None,
    cap: float | None = None,
    splits: int = 1,
) -> Tensor:
    """What `paged_decode` computes, in plain torch and float32, on any device and for any page size.

    Same arguments and result; `splits` changes nothing here. It gathers the visible slots of one session
    after another and reads no other slot.
    """
    sink_start = torch.zeros_like(start) if sink_start is None else sink_start
    shape = _check(q_window, q_sink, k_pages, v_pages, page_table, page_pos, sink_tokens, sink_start, start, position)
    scale = shape.head_dim**-0.5 if scale is None else scale
    entry = torch.arange(shape.table_len, device=page_pos.device)
    out = torch.empty_like(q_window)
    for session in range(shape.sessions):
        sinks, first, t = int(sink_tokens[session]), int(start[session]), int(position[session])
        in_sink_page, sight = entry < ceil_div(sinks, shape.page_size), (int(sink_start[session]), sinks, first, t)
        entries, slots = visible_torch(page_pos[session], in_sink_page, shape.page_size, *sight)
        pages = page_table[session, entries].long()
        k, v = k_pages[:, pages, slots].float(), v_pages[:, pages, slots].float()
        by_sink = in_sink_page[entries]
        out[session] = attended_torch(q_window[session], q_sink[session], k, v, by_sink, scale, cap)
    return out


def _check(
    q_window: Tensor, q_sink: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, page_pos: Tensor,
    sink_tokens: Tensor, sink_start: Tensor, start: Tensor, position: Tensor,
) -> _Shape:  # fmt: skip
    """Raise ValueError with one sentence about the first argument that does not fit; looks at no values."""
    for name, tensor, dims in (
        ("q_window", q_window, "[sessions, q_heads, head_dim]"),
        ("k_pages", k_pages, "[kv_heads, pages, page_size, head_dim]"),
        ("page_table", page_table, "[sessions, table_len]"),
    ):
        expect_dims(name, tensor, dims)
    sessions, q_heads, head_dim = q_window.shape
    kv_heads, _, page_size, _ = k_pages.shape
    expect_float("q_window", q_window)
    if q_heads % kv_heads:
        raise ValueError(f"q_window has {q_heads} heads: expected a multiple of the {kv_heads} heads of k_pages")

    table = (sessions, page_table.shape[1])
    pages = (*k_pages.shape[:3], head_dim)
    for name, tensor, size, dtype in (
        ("q_window", q_window, tuple(q_window.shape), q_window.dtype),
        ("q_sink", q_sink, tuple(q_window.shape), q_window.dtype),
        ("k_pages", k_pages, pages, q_window.dtype),
        ("v_pages", v_pages, pages, q_window.dtype),
        ("page_table", page_table, table, torch.int32),
        ("page_pos", page_pos, table, torch.int64),
        ("sink_tokens", sink_tokens, (sessions,), torch.int64),
        ("sink_start", sink_start, (sessions,), torch.int64),
        ("start", start, (sessions,), torch.int64),
        ("position", position, (sessions,), torch.int64),
    ):
        layout = Layout.ROWS if name.endswith("_pages") else Layout.DENSE
        expect(name, tensor, size, dtype, ("q_window", q_window), layout)
    return _Shape(sessions, q_heads, kv_heads, page_size, head_dim, page_table.shape[1])


def _check_served(shape: _Shape, splits: int) -> None:
    """Raise ValueError for sizes that the twin takes and the kernel does not."""
    check_decode_served(shape.page_size, shape.head_dim, shape.group)
    if not 1 <= splits <= MAX_SPLITS:
        raise ValueError(f"splits is {splits}: expected 1 to {MAX_SPLITS}")


def check_decode_served(page_size: int, head_dim: int, group: int) -> None:
    """Raise ValueError for pages and heads that no decode kernel serves."""
    if page_size < 16 or page_size & (page_size - 1):
        raise ValueError(f"page_size is {page_size}: the kernel needs a power of two, at least 16")
    if head_dim > MAX_HEAD_DIM or group > MAX_GROUP:
        raise ValueError(
            f"head_dim is {head_dim} and {group} query heads share a KV head: the kernel serves at most "
            f"{MAX_HEAD_DIM} and {MAX_GROUP}"
        )


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: the three types, every head size and page size, one split and many."""
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    for dtype, head_dim, page_size, group, splits, capped in (
        (bf16, 64, 16, 3, 8, False), (bf16, 80, 32, 1, 1, False), (fp16, 96, 64, 1, 8, False),
        (bf16, 128, 64, 4, 8, False), (fp16, 128, 128, 16, 8, False), (bf16, 256, 64, 2, 1, False),
        (bf16, 256, 64, 2, 8, True), (fp32, 64, 64, 3, 8, False),
    ):  # fmt: skip
        tiling = _Tiling.of(head_dim, page_size, dtype.itemsize)
        values = f"*{FLOATS[dtype]}:16"
        output = "*fp32:16" if splits > 1 else values
        strides = ("i32:16", "i32:16", "i32:16")
        yield CompileCase(
            f"decode_split {FLOATS[dtype]} d{head_dim} page{page_size} group{group} splits{splits}{' capped' * capped}",
            _decode_split,
            dict.fromkeys(("q_window", "q_sink", "k_pages", "v_pages"), values)
            | {"page_table": "*i32:16"}
            | dict.fromkeys(("page_pos", "sink_tokens", "sink_start", "start", "position"), "*i64:16")
            | {"out": output, "out_lse": output, "table_len": "i32", "scale": "fp32", "cap": "fp32"}
            | {"k_strides": strides, "v_strides": strides},
            {"GROUP": group, "HEAD_DIM": head_dim, "PAGE_SIZE": page_size, "SPLITS": splits,
             "CAPPED": capped, "BLOCK_M": MAX_GROUP, "BLOCK_N": tiling.block_n, "BLOCK_D": tiling.block_d},
            tiling.num_warps, tiling.num_stages,
        )  # fmt: skip
