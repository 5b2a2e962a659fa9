"""Paged decode attention over packed pages: `paged_attention` where full pages lie quantised.

Windows, the two-phase query and split-KV are those of `paged_attention`. A session's first sink pages and the page
that is being written lie as computed, in frames; its other pages lie packed (see `page_quantise`), with one scale a
row. The first two splits take the frames, the others every so manieth tile of packed pages, whose codes become levels
in registers; a key's scale is multiplied into its score and a value's into its weight.

Where pages hold rotated rows (QuaRot, arXiv 2404.00456), the queries come rotated and the result is in the rotated
space, to be turned back by the caller: nothing is rotated inside the loop over pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.arguments import FLOATS
from kernels.flash import MAX_SPLITS, attended_torch, fold_pages, merge_splits, seen_slots, visible_torch, weigh
from kernels.packed_pages import PAIRS, PackedRows, PackedShape, PackedTables, check_packed
from kernels.page_quantise import Packing
from kernels.page_unpack import (
    load_magnitudes,
    load_parts,
    mix,
    no_parts,
    part_block,
    part_dims,
    products,
    unpack_parts,
    unpacked_torch,
)  # fmt: skip
from kernels.paged_attention import MAX_GROUP, check_decode_served
from kernels.runtime import CompileCase, ceil_div, jit, next_power_of_two, require, tl

FRAME_SPLITS = 2
"""One for the sinks that lie in frames, one for the page that is being written."""
_TILE_BYTES = 8 * 1024


@jit
def _fold_packed(
    state: tl.tuple, q: tl.tuple, keys: tl.tuple, values: tl.tuple, magnitudes: tl.tuple, table: tl.tensor,
    page_pos: tl.tensor, first: tl.tensor, end: tl.tensor, low: tl.tensor, high: tl.tensor, scale: tl.tensor,
    cap: tl.tensor, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, STEP: tl.constexpr, K_BITS: tl.constexpr,
    V_BITS: tl.constexpr, CAPPED: tl.constexpr, BLOCK_N: tl.constexpr, K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Fold tiles first, first + STEP, ... < end of packed pages; keys and values are pointers to codes and scales."""
    row_max, row_sum, acc = state
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    for tile in tl.range(first, end, STEP):
        page = tl.load(table + tile // TILES).to(tl.int64)  # slots x row bytes pass 2**31 in a large pool
        slot, seen = seen_slots(page_pos, tile, low, high, PAGE_SIZE, BLOCK_N)
        slot = page * PAGE_SIZE + slot
        k = unpack_parts(keys[0] + slot * (HEAD_DIM * K_BITS // 8), seen, magnitudes, HEAD_DIM, K_BITS, K_BLOCK)
        k_scale = tl.load(keys[1] + slot, mask=seen, other=0.0).to(tl.float32) * scale
        scores = products(q, k, K_BITS) * k_scale[None, :]
        new_max, p, shrink = weigh(row_max, scores, seen[None, :], cap, CAPPED)
        v = unpack_parts(values[0] + slot * (HEAD_DIM * V_BITS // 8), seen, magnitudes, HEAD_DIM, V_BITS, V_BLOCK)
        weights = p * tl.load(values[1] + slot, mask=seen, other=0.0).to(tl.float32)[None, :]
        if q[0].dtype != tl.float32:
            weights = weights.to(tl.bfloat16)  # a weight times a small scale is nothing in float16
        acc = mix(acc, shrink, weights, v, V_BITS)
        row_sum = row_sum * shrink + tl.sum(p, 1)
        row_max = new_max
    return row_max, row_sum, acc


@jit
def _store_split(
    out: tl.tuple, row_max: tl.tensor, row_sum: tl.tensor, acc: tl.tuple, held: tl.tensor, HEAD_DIM: tl.constexpr,
    BITS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """What a split found for its query heads: the mix of values, in parts, and the log2 of the softmax sum."""
    empty = row_sum == 0.0
    total = tl.where(empty, 1.0, row_sum)
    tl.store(out[1], tl.where(empty, float("-inf"), row_max + tl.log2(total)), mask=held)
    for index in tl.static_range(len(acc)):
        dim, exists = part_dims(index, HEAD_DIM, BITS, BLOCK)
        place = out[0][:, None] + dim[None, :]
        tl.store(place, acc[index] / total[:, None], mask=held[:, None] & exists[None, :])


@jit
def _frame_split(
    q_rows: tl.tuple, k_head: tl.tensor, v_head: tl.tensor, k_strides: tl.tuple, v_strides: tl.tuple, table: tl.tensor,
    page_pos: tl.tensor, kept: tl.tensor, split: tl.tensor, sight: tl.tuple, out: tl.tuple, held: tl.tensor,
    scale: tl.tensor, cap: tl.tensor, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, CAPPED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
) -> None:  # fmt: skip
    """The sinks that lie in frames (split 0), or the page that is being written (split 1)."""
    sinks, sinks_seen, sink_low, ring_low, t = sight
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    among_sinks = (split == 0) | (t < sinks)
    by_window = load_parts(q_rows[0], held, HEAD_DIM, 8, BLOCK_D)
    by_sink = load_parts(q_rows[1], held, HEAD_DIM, 8, BLOCK_D)
    row_max, row_sum = tl.full([BLOCK_M], float("-inf"), tl.float32), tl.zeros([BLOCK_M], tl.float32)
    row_max, row_sum, acc = fold_pages(
        (row_max, row_sum, tl.zeros([BLOCK_M, BLOCK_D], tl.float32)), tl.where(among_sinks, by_sink[0], by_window[0]),
        k_head, v_head, k_strides, v_strides, table, page_pos, split * kept * TILES, (split + kept) * TILES,
        tl.where(among_sinks, sink_low, ring_low), tl.where(among_sinks, sinks_seen - 1, t), scale, cap, HEAD_DIM,
        PAGE_SIZE, 1, CAPPED, BLOCK_N, BLOCK_D,
    )  # fmt: skip
    _store_split(out, row_max, row_sum, (acc,), held, HEAD_DIM, 8, BLOCK_D)


@jit
def _packed_split(
    q_rows: tl.tuple, keys: tl.tuple, values: tl.tuple, magnitudes: tl.tensor, table: tl.tensor, page_pos: tl.tensor,
    table_len: tl.tensor, kept: tl.tensor, split: tl.tensor, sight: tl.tuple, out: tl.tuple, held: tl.tensor,
    scale: tl.tensor, cap: tl.tensor, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, STEP: tl.constexpr,
    K_BITS: tl.constexpr, V_BITS: tl.constexpr, CAPPED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Every STEP-th tile of the packed sinks and of the ring."""
    sinks, sinks_seen, sink_low, ring_low, t = sight
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    row_max, row_sum = tl.full([BLOCK_M], float("-inf"), tl.float32), tl.zeros([BLOCK_M], tl.float32)
    levels = load_magnitudes(magnitudes, K_BITS)
    state = _fold_packed(
        (row_max, row_sum, no_parts(BLOCK_M, V_BITS, V_BLOCK)), load_parts(q_rows[1], held, HEAD_DIM, K_BITS, K_BLOCK),
        keys, values, levels, table, page_pos, kept * TILES + split, tl.cdiv(sinks_seen, BLOCK_N).to(tl.int32),
        sink_low, sinks_seen - 1, scale, cap, HEAD_DIM, PAGE_SIZE, STEP, K_BITS, V_BITS, CAPPED, BLOCK_N, K_BLOCK,
        V_BLOCK,
    )  # fmt: skip
    # Cost follows what the token sees, not the quota: pages behind the newest position are not walked.
    ring_first = tl.cdiv(sinks, PAGE_SIZE).to(tl.int32)
    ring_pages = tl.cdiv(tl.maximum(t + 1 - sinks, 0), PAGE_SIZE)
    ring_end = tl.minimum(ring_first + ring_pages, table_len).to(tl.int32)
    row_max, row_sum, acc = _fold_packed(
        state, load_parts(q_rows[0], held, HEAD_DIM, K_BITS, K_BLOCK), keys, values, levels, table, page_pos,
        ring_first * TILES + split, ring_end * TILES, ring_low, t, scale, cap, HEAD_DIM, PAGE_SIZE, STEP, K_BITS,
        V_BITS, CAPPED, BLOCK_N, K_BLOCK, V_BLOCK,
    )  # fmt: skip
    _store_split(out, row_max, row_sum, acc, held, HEAD_DIM, V_BITS, V_BLOCK)


@jit
def _decode_packed(
    q_window: tl.tensor, q_sink: tl.tensor, k_frames: tl.tensor, v_frames: tl.tensor, k_codes: tl.tensor,
    k_scales: tl.tensor, v_codes: tl.tensor, v_scales: tl.tensor, magnitudes: tl.tensor, page_table: tl.tensor,
    page_pos: tl.tensor, frame_table: tl.tensor, frame_pos: tl.tensor, kept_pages: tl.tensor, sink_tokens: tl.tensor,
    sink_start: tl.tensor, start: tl.tensor, position: tl.tensor, partial: tl.tensor, lse: tl.tensor,
    table_len: tl.tensor, frame_len: tl.tensor, slots: tl.tensor, scale: tl.tensor, cap: tl.tensor,
    k_strides: tl.tuple, v_strides: tl.tuple, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr,
    SPLITS: tl.constexpr, K_BITS: tl.constexpr, V_BITS: tl.constexpr, CAPPED: tl.constexpr, BLOCK_M: tl.constexpr,
    FRAME_N: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, K_BLOCK: tl.constexpr, V_BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One split of one session and KV head: its normalised output and the log2 of its softmax sum."""
    split, kv_head, session = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    sinks, t = tl.load(sink_tokens + session), tl.load(position + session)
    sinks_seen = tl.maximum(tl.minimum(sinks, t + 1), 0)
    sight = (sinks, sinks_seen, tl.load(sink_start + session), tl.load(start + session), t)
    kept = tl.load(kept_pages + session).to(tl.int32)
    row = tl.arange(0, BLOCK_M)
    q_row = (session * tl.num_programs(1) + kv_head) * GROUP + row
    q_rows = (q_window + q_row * HEAD_DIM, q_sink + q_row * HEAD_DIM)
    part = q_row * SPLITS + split
    out = (partial + part * HEAD_DIM, lse + part)
    if split < 2:
        _frame_split(
            q_rows, k_frames + kv_head * k_strides[0], v_frames + kv_head * v_strides[0], k_strides, v_strides,
            frame_table + session * frame_len, frame_pos + session * frame_len, kept, split, sight, out, row < GROUP,
            scale, cap, HEAD_DIM, PAGE_SIZE, CAPPED, BLOCK_M, FRAME_N, BLOCK_D,
        )  # fmt: skip
    else:
        first = kv_head * slots
        _packed_split(
            q_rows, (k_codes + first * (HEAD_DIM * K_BITS // 8), k_scales + first),
            (v_codes + first * (HEAD_DIM * V_BITS // 8), v_scales + first), magnitudes,
            page_table + session * table_len, page_pos + session * table_len, table_len, kept, split - 2, sight, out,
            row < GROUP, scale, cap, HEAD_DIM, PAGE_SIZE, SPLITS - 2, K_BITS, V_BITS, CAPPED, BLOCK_M, BLOCK_N,
            K_BLOCK, V_BLOCK,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Compile-time sizes of `_decode_packed`; a pure function of shapes, so one engine compiles once."""

    frame_n: int
    block_n: int
    block_d: int
    num_warps: int = 4
    num_stages: int = 3

    @classmethod
    def of(cls, head_dim: int, page_size: int, element_size: int) -> _Tiling:
        """Tiles of at most a page, so that one table read serves a tile; at least the 16 that tensor cores need.
        float32 has no tensor cores: tq3 of 256 values spills with 4 warps, and on sm_100 with 8 and 3 stages."""
        block_d = max(16, next_power_of_two(head_dim))
        block_n = max(16, min(page_size, 64, _TILE_BYTES // (block_d * element_size)))
        return cls(block_n, block_n, block_d, 8, 2) if element_size == 4 else cls(block_n, block_n, block_d)


def paged_decode_packed(
    q_window: Tensor, q_sink: Tensor, k_frames: Tensor, v_frames: Tensor, keys: PackedRows, values: PackedRows,
    tables: PackedTables, *, magnitudes: Tensor | None = None, scale: float | None = None, cap: float | None = None,
    splits: int = FRAME_SPLITS + 1,
) -> Tensor:  # fmt: skip
    """Attention of one token a session over its frames and packed pages, by the Triton kernel; returns
    `[sessions, q_heads, head_dim]`.

    - `q_window`, `q_sink`: `[sessions, q_heads, head_dim]`, contiguous, as in `paged_decode`; head_dim a multiple of 8.
    - `k_frames`, `v_frames`: `[kv_heads, frames, page_size, head_dim]` in the type of q, as `paged_decode` has pages.
    - `keys`, `values`: the packed rows; int8 with int8 or int4, int4 with int4, or tq3 with tq3.
    - `magnitudes`: float32 `[4]`, ascending, of the codebook; for `Packing.TQ3` and for it alone.
    - `scale`, `cap`: as in `paged_decode`. `splits`: programs a session and KV head, FRAME_SPLITS of them for frames,
      at most MAX_SPLITS.

    Slots that the token does not see are never read. A row with position -1 is unused: its output is 0. Raises
    ValueError naming the argument that is wrong, and KernelUnavailableError on a device without the kernel.
    """
    shape = check_packed(q_window, q_sink, k_frames, v_frames, keys, values, tables, magnitudes)
    _check_served(shape, splits)
    require("paged_decode_packed", "paged_decode_packed_torch", q_window.device)
    tiling = _Tiling.of(shape.head_dim, shape.page_size, q_window.element_size())
    out, rows = torch.empty_like(q_window), shape.sessions * shape.q_heads
    partial = out.new_empty((rows, splits, shape.head_dim), dtype=torch.float32)
    lse = out.new_empty((rows, splits), dtype=torch.float32)
    scale = (shape.head_dim**-0.5 if scale is None else scale) * math.log2(math.e)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _decode_packed[(splits, shape.kv_heads, shape.sessions)](
            q_window, q_sink, k_frames, v_frames, keys.codes, keys.scales, values.codes, values.scales,
            q_window if magnitudes is None else magnitudes, tables.page_table, tables.page_pos, tables.frame_table,
            tables.frame_pos, tables.kept, tables.sink_tokens, tables.sink_start, tables.start, tables.position,
            partial, lse, tables.page_table.shape[1], tables.frame_table.shape[1], shape.slots,
            scale if cap is None else 2 * scale / cap, (cap or 0.0) * math.log2(math.e), k_frames.stride()[:3],
            v_frames.stride()[:3], GROUP=shape.group, HEAD_DIM=shape.head_dim, PAGE_SIZE=shape.page_size,
            SPLITS=splits, K_BITS=keys.packing.value, V_BITS=values.packing.value, CAPPED=cap is not None,
            BLOCK_M=MAX_GROUP, FRAME_N=tiling.frame_n, BLOCK_N=tiling.block_n, BLOCK_D=tiling.block_d,
            K_BLOCK=part_block(keys.packing, shape.head_dim), V_BLOCK=part_block(values.packing, shape.head_dim),
            num_warps=tiling.num_warps, num_stages=tiling.num_stages,
        )  # fmt: skip
        merge_splits(partial, lse, out)
    return out


def paged_decode_packed_torch(
    q_window: Tensor, q_sink: Tensor, k_frames: Tensor, v_frames: Tensor, keys: PackedRows, values: PackedRows,
    tables: PackedTables, *, magnitudes: Tensor | None = None, scale: float | None = None, cap: float | None = None,
    splits: int = FRAME_SPLITS + 1,
) -> Tensor:  # fmt: skip
    """What `paged_decode_packed` computes, in plain torch and float32, on any device and for any page size; `splits`
    changes nothing here. It gathers the visible slots of one session after another and reads no other slot."""
    shape = check_packed(q_window, q_sink, k_frames, v_frames, keys, values, tables, magnitudes)
    scale = shape.head_dim**-0.5 if scale is None else scale
    out = torch.empty_like(q_window)
    for session in range(shape.sessions):
        in_frames, framed_sinks, packed, packed_sinks = _visible(tables, session, shape.page_size)
        entries, offsets = in_frames
        frames = tables.frame_table[session, entries].long()
        slots = tables.page_table[session, packed[0]].long() * shape.page_size + packed[1]
        k, v = (
            torch.cat((frame[:, frames, offsets].float(), _dequantised(rows, slots, magnitudes)), dim=1)
            for frame, rows in ((k_frames, keys), (v_frames, values))
        )
        by_sink = torch.cat((framed_sinks, packed_sinks))
        out[session] = attended_torch(q_window[session], q_sink[session], k, v, by_sink, scale, cap)
    return out


def _visible(
    tables: PackedTables, session: int, page_size: int
) -> tuple[tuple[Tensor, Tensor], Tensor, tuple[Tensor, Tensor], Tensor]:
    """What one token sees: entries of its frame table with offsets, which of them are sinks, and the same of its page
    table."""
    sinks, t, kept = int(tables.sink_tokens[session]), int(tables.position[session]), int(tables.kept[session])
    sight = int(tables.sink_start[session]), sinks, int(tables.start[session]), t
    own = torch.arange(tables.frame_table.shape[1], device=tables.kept.device)
    entry = torch.arange(tables.page_table.shape[1], device=tables.kept.device)
    framed_sinks, packed_sinks = own < kept + (t < sinks), entry < ceil_div(sinks, page_size)
    frames = visible_torch(tables.frame_pos[session], framed_sinks, page_size, *sight)
    packed = visible_torch(tables.page_pos[session], packed_sinks, page_size, *sight)
    return frames, framed_sinks[frames[0]], packed, packed_sinks[packed[0]]


def _dequantised(rows: PackedRows, slots: Tensor, magnitudes: Tensor | None) -> Tensor:
    return unpacked_torch(rows.codes[:, slots], rows.packing, magnitudes) * rows.scales[:, slots, None].float()


def _check_served(shape: PackedShape, splits: int) -> None:
    """Raise ValueError for sizes that the twin takes and the kernel does not."""
    check_decode_served(shape.page_size, shape.head_dim, shape.group)
    if shape.head_dim % 8:
        raise ValueError(f"head_dim is {shape.head_dim}: expected a multiple of 8")
    if not FRAME_SPLITS < splits <= MAX_SPLITS:
        raise ValueError(f"splits is {splits}: expected {FRAME_SPLITS + 1} to {MAX_SPLITS}")


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: every pair of packings, the three types, every head size."""
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    for dtype, head_dim, page_size, group, pair, capped in (
        (bf16, 64, 32, 3, 0, False), (bf16, 128, 32, 4, 0, False), (bf16, 256, 64, 2, 0, True),
        (bf16, 64, 16, 3, 1, False), (bf16, 128, 64, 16, 1, False), (fp16, 80, 32, 1, 1, False),
        (bf16, 64, 32, 3, 2, False), (bf16, 128, 32, 4, 2, False), (bf16, 256, 64, 2, 2, True),
        (bf16, 64, 32, 3, 3, False), (bf16, 128, 128, 4, 3, False), (bf16, 256, 64, 2, 3, True),
        (fp16, 96, 32, 1, 3, False), (fp32, 64, 32, 3, 0, False), (fp32, 256, 64, 2, 3, True),
    ):  # fmt: skip
        tiling, (keys, values) = _Tiling.of(head_dim, page_size, dtype.itemsize), PAIRS[pair]
        floats = f"*{FLOATS[dtype]}:16"
        strides = ("i32:16", "i32:16", "i32:16")
        yield CompileCase(
            f"decode_packed {keys.name.lower()}/{values.name.lower()} {FLOATS[dtype]} d{head_dim} page{page_size}"
            f" group{group}{' capped' * capped}",
            _decode_packed,
            dict.fromkeys(("q_window", "q_sink", "k_frames", "v_frames"), floats)
            | {"k_codes": "*u8:16", "k_scales": "*bf16:16", "v_codes": "*u8:16", "v_scales": "*bf16:16"}
            | {"magnitudes": "*fp32:16" if keys is Packing.TQ3 else floats}
            | {"page_table": "*i32:16", "page_pos": "*i64:16", "frame_table": "*i32:16", "frame_pos": "*i64:16"}
            | dict.fromkeys(("kept_pages", "sink_tokens", "sink_start", "start", "position"), "*i64:16")
            | {"partial": "*fp32:16", "lse": "*fp32:16", "table_len": "i32", "frame_len": "i32", "slots": "i32:16"}
            | {"scale": "fp32", "cap": "fp32", "k_strides": strides, "v_strides": strides},
            {"GROUP": group, "HEAD_DIM": head_dim, "PAGE_SIZE": page_size, "SPLITS": 10, "K_BITS": keys.value,
             "V_BITS": values.value, "CAPPED": capped, "BLOCK_M": MAX_GROUP, "FRAME_N": tiling.frame_n,
             "BLOCK_N": tiling.block_n, "BLOCK_D": tiling.block_d, "K_BLOCK": part_block(keys, head_dim),
             "V_BLOCK": part_block(values, head_dim)},
            tiling.num_warps, tiling.num_stages,
        )  # fmt: skip
