"""What the attention kernels have in common: online softmax over tiles of keys, and the merging of splits.

FlashAttention (Dao, arXiv 2307.08691) folds one tile of keys and values after the other into a running maximum, sum
and mix, in base 2. Split-KV decoding (Flash-Decoding, Dao et al., 2023) has several programs fold their share of one
query's tiles; a second kernel merges what they found.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.runtime import CompileCase, ceil_div, dot, jit, next_power_of_two, tl

MAX_SPLITS = 128
"""The merge kernel holds one column tile of all splits in registers: 128 x 64 float32 is 64 registers a thread."""
_MERGE_COLUMNS = 64


@jit
def weigh(row_max: tl.tensor, scores: tl.tensor, seen: tl.tensor, cap: tl.tensor, CAPPED: tl.constexpr) -> tl.tuple:
    """The new maximum of each row, the weights of a tile's keys relative to it, and what to shrink earlier finds by;
    `seen` says which row sees which key."""
    if CAPPED:
        scores = cap * (1.0 - 2.0 / (tl.exp2(scores) + 1.0))  # cap * tanh, its own factors folded into scale
    scores = tl.where(seen, scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    base = tl.where(new_max == float("-inf"), 0.0, new_max)  # -inf - -inf is NaN: nothing was seen so far
    return new_max, tl.exp2(scores - base[:, None]), tl.exp2(row_max - base)


@jit
def fold_tile(
    state: tl.tuple, q: tl.tensor, k_rows: tl.tensor, v_rows: tl.tensor, read: tl.tensor, seen: tl.tensor,
    scale: tl.tensor, cap: tl.tensor, CAPPED: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Fold one tile of keys into (max, sum, acc): `read` says which values exist, `seen` which row sees which key."""
    row_max, row_sum, acc = state
    k = tl.load(k_rows, mask=read, other=0.0)
    new_max, p, shrink = weigh(row_max, dot(q, tl.trans(k)) * scale, seen, cap, CAPPED)
    # Masked like K, not only through p = 0: an unwritten slot may hold NaN, and 0 * NaN is NaN (vLLM #30887).
    v = tl.load(v_rows, mask=read, other=0.0)
    return new_max, row_sum * shrink + tl.sum(p, 1), acc * shrink[:, None] + dot(p.to(v.dtype), v)


@jit
def seen_slots(
    page_pos: tl.tensor, tile: tl.tensor, low: tl.tensor, high: tl.tensor, PAGE_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """The slots of a tile within its page, and which of them hold a position of [low, high]."""
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    page_start = tl.load(page_pos + tile // TILES)
    slot = tile % TILES * BLOCK_N + tl.arange(0, BLOCK_N)
    # A slot is compared below, a position above: with two positions head_dim 256 spills on sm_100, with two slots
    # head_dim 80 on sm_90.
    low_slot = tl.minimum(low - page_start, PAGE_SIZE).to(tl.int32)
    return slot, (page_start >= 0) & (slot >= low_slot) & (page_start + slot <= high)


@jit
def fold_pages(
    state: tl.tuple, q: tl.tensor, k_head: tl.tensor, v_head: tl.tensor, k_strides: tl.tuple, v_strides: tl.tuple,
    table: tl.tensor, page_pos: tl.tensor, first: tl.tensor, end: tl.tensor, low: tl.tensor, high: tl.tensor,
    scale: tl.tensor, cap: tl.tensor, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, SPLITS: tl.constexpr,
    CAPPED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Fold tiles first, first + SPLITS, ... < end of pages; a slot counts when low <= position <= high."""
    TILES: tl.constexpr = PAGE_SIZE // BLOCK_N
    dim = tl.arange(0, BLOCK_D)[None, :]
    for tile in tl.range(first, end, SPLITS):
        page = tl.load(table + tile // TILES).to(tl.int64)  # pages x stride passes 2**31 elements in a large pool
        slot, seen = seen_slots(page_pos, tile, low, high, PAGE_SIZE, BLOCK_N)
        state = fold_tile(
            state, q, k_head + page * k_strides[1] + slot[:, None] * k_strides[2] + dim,
            v_head + page * v_strides[1] + slot[:, None] * v_strides[2] + dim, seen[:, None] & (dim < HEAD_DIM),
            seen[None, :], scale, cap, CAPPED,
        )  # fmt: skip
    return state


@jit
def _merge_splits(
    partial: tl.tensor, partial_lse: tl.tensor, out: tl.tensor,
    HEAD_DIM: tl.constexpr, SPLITS: tl.constexpr, BLOCK_S: tl.constexpr, COLUMNS: tl.constexpr,
) -> None:  # fmt: skip
    """Weigh the splits of one query head by 2**lse; a split that saw nothing weighs 0."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)
    dim = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    lse = tl.load(partial_lse + row * SPLITS + split, mask=split < SPLITS, other=float("-inf"))
    top = tl.max(lse, 0)
    weight = tl.exp2(lse - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weight, 0)
    read = (split < SPLITS)[:, None] & (dim < HEAD_DIM)[None, :]
    parts = tl.load(partial + (row * SPLITS + split[:, None]) * HEAD_DIM + dim[None, :], mask=read, other=0.0)
    merged = tl.sum(parts * weight[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + row * HEAD_DIM + dim, merged.to(out.dtype.element_ty), mask=dim < HEAD_DIM)


def merge_splits(partial: Tensor, lse: Tensor, out: Tensor) -> None:
    """Write into `out` `[..., head_dim]` what the splits found: `partial` float32 `[rows, splits, head_dim]`, each
    normalised, and `lse` float32 `[rows, splits]`, the log2 of its softmax sum; by the Triton kernel."""
    rows, splits, head_dim = partial.shape
    _merge_splits[(rows, ceil_div(head_dim, _MERGE_COLUMNS))](
        partial, lse, out, HEAD_DIM=head_dim, SPLITS=splits, BLOCK_S=next_power_of_two(splits),
        COLUMNS=_MERGE_COLUMNS,
    )  # fmt: skip


def visible_torch(
    page_pos: Tensor, in_sinks: Tensor, page_size: int, sink: int, sinks: int, start: int, t: int
) -> tuple[Tensor, Tensor]:
    """Entries of one session's table, and slots within their pages, that its token at `t` sees: `page_pos` `[entries]`
    says where pages begin, `in_sinks` which are sinks; seen are [sink, sinks) and [start, t]. In plain torch."""
    held_at = page_pos[:, None] + torch.arange(page_size, device=page_pos.device)
    allowed = torch.where(in_sinks[:, None], (held_at >= sink) & (held_at < sinks), held_at >= start)
    entries, slots = ((page_pos >= 0)[:, None] & (held_at <= t) & allowed).nonzero(as_tuple=True)
    return entries, slots


def attended_torch(
    q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor, by_sink: Tensor, scale: float, cap: float | None
) -> Tensor:
    """Attention of one token, `[q_heads, head_dim]`, in float32 and plain torch: keys and values float32
    `[kv_heads, keys, head_dim]`, of which those `by_sink` `[keys]` are scored with `q_sink`."""
    grouped = (k.shape[0], -1, k.shape[2])
    sink, window = (q.float().view(grouped) @ k.mT for q in (q_sink, q_window))
    scores = torch.where(by_sink, sink, window) * scale
    scores = scores if cap is None else torch.tanh(scores / cap) * cap
    return (scores.softmax(-1) @ v).view(q_window.shape)


def decode_splits(sessions: int, kv_heads: int, table_len: int, page_size: int, processors: int) -> int:
    """Splits for decoding: two programs for each of the GPU's `processors`, about 128 tokens a split at least.

    Depends on the quota and the batch, never on a position, so that a captured graph stays valid.
    """
    wanted = ceil_div(2 * processors, sessions * kv_heads)
    return max(1, min(wanted, ceil_div(table_len * page_size, 128), MAX_SPLITS))


def compile_cases() -> Iterator[CompileCase]:
    """What `python -m kernels.compile` builds: few splits and as many as there may be."""
    for head_dim, splits in ((64, 8), (256, MAX_SPLITS)):
        yield CompileCase(
            f"merge_splits bf16 d{head_dim} splits{splits}", _merge_splits,
            {"partial": "*fp32:16", "partial_lse": "*fp32:16", "out": "*bf16:16"},
            {"HEAD_DIM": head_dim, "SPLITS": splits, "BLOCK_S": next_power_of_two(splits),
             "COLUMNS": _MERGE_COLUMNS}, 4, 3,
        )  # fmt: skip
