"""What attention over packed pages takes: the packed rows of a layer, and where each session's pages lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.arguments import Layout, expect, expect_dims, expect_float
from kernels.page_quantise import Packing

PAIRS = (
    (Packing.INT8, Packing.INT8), (Packing.INT8, Packing.INT4), (Packing.INT4, Packing.INT4),
    (Packing.TQ3, Packing.TQ3),
)  # fmt: skip
"""Packings of keys and values that go together."""
_NAMES = ", ".join(f"{keys.name} with {values.name}" for keys, values in PAIRS)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The packed keys or values of one layer: `codes` uint8 `[kv_heads, pages * page_size, row_bytes]` and `scales`
    bfloat16 `[kv_heads, pages * page_size]`, both contiguous."""

    codes: Tensor
    scales: Tensor
    packing: Packing


@dataclass(frozen=True, slots=True)
class PackedTables:
    """Where the pages of each session lie, and what its token sees.

    - `page_table` int32 and `page_pos` int64 `[sessions, table_len]`, as in `paged_attention`; `page_pos` is -1 for
      pages that lie in frames.
    - `frame_table` int32 and `frame_pos` int64 `[sessions, frames]`: the frames of the first `kept` sink pages, then
      that of the page being written; `frame_pos` is the position at which each begins, -1 for none.
    - `kept` int64 `[sessions]`: how many of its first sink pages lie in frames; less than `frames`.
    - `sink_tokens`, `sink_start`, `start`, `position`: int64 `[sessions]`, as in `paged_attention`.
    """

    page_table: Tensor
    page_pos: Tensor
    frame_table: Tensor
    frame_pos: Tensor
    kept: Tensor
    sink_tokens: Tensor
    sink_start: Tensor
    start: Tensor
    position: Tensor


@dataclass(frozen=True, slots=True)
class PackedShape:
    """The sizes of one call, taken from its arguments once they are checked."""

    sessions: int
    q_heads: int
    kv_heads: int
    page_size: int
    head_dim: int
    slots: int

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.q_heads // self.kv_heads


def check_packed(
    q_window: Tensor, q_sink: Tensor, k_frames: Tensor, v_frames: Tensor, keys: PackedRows, values: PackedRows,
    tables: PackedTables, magnitudes: Tensor | None,
) -> PackedShape:  # fmt: skip
    """The sizes of a call; raises ValueError with one sentence about the first argument that does not fit."""
    for name, tensor, dims in (
        ("q_window", q_window, "[sessions, q_heads, head_dim]"),
        ("k_frames", k_frames, "[kv_heads, frames, page_size, head_dim]"),
        ("keys.scales", keys.scales, "[kv_heads, slots]"),
        ("page_table", tables.page_table, "[sessions, table_len]"),
        ("frame_table", tables.frame_table, "[sessions, frames]"),
    ):
        expect_dims(name, tensor, dims)
    expect_float("q_window", q_window)
    sessions, q_heads, head_dim = q_window.shape
    kv_heads, _, page_size, _ = k_frames.shape
    slots = keys.scales.shape[1]
    if q_heads % kv_heads:
        raise ValueError(f"q_window has {q_heads} heads: expected a multiple of the {kv_heads} heads of k_frames")
    if slots % page_size:
        raise ValueError(f"keys.scales has {slots} slots: expected whole pages of {page_size}")
    if (keys.packing, values.packing) not in PAIRS:
        raise ValueError(f"keys are {keys.packing.name} and values {values.packing.name}: expected one of {_NAMES}")
    frames, beside = (*k_frames.shape[:3], head_dim), ("q_window", q_window)
    for name, tensor, size, layout in (
        ("q_window", q_window, tuple(q_window.shape), Layout.DENSE),
        ("q_sink", q_sink, tuple(q_window.shape), Layout.DENSE),
        ("k_frames", k_frames, frames, Layout.ROWS),
        ("v_frames", v_frames, frames, Layout.ROWS),
    ):
        expect(name, tensor, size, q_window.dtype, beside, layout)
    for name, rows in (("keys", keys), ("values", values)):
        size = (kv_heads, slots, rows.packing.row_bytes(head_dim))
        expect(f"{name}.codes", rows.codes, size, torch.uint8, beside, Layout.DENSE)
        expect(f"{name}.scales", rows.scales, (kv_heads, slots), torch.bfloat16, beside, Layout.DENSE)
    _check_tables(tables, sessions, beside)
    if (magnitudes is not None) != (keys.packing is Packing.TQ3):
        raise ValueError(f"magnitudes belong to TQ3 and to it alone; the packing is {keys.packing.name}")
    if magnitudes is not None:
        expect("magnitudes", magnitudes, (4,), torch.float32, beside, Layout.DENSE)
    return PackedShape(sessions, q_heads, kv_heads, page_size, head_dim, slots)


def _check_tables(tables: PackedTables, sessions: int, beside: tuple[str, Tensor]) -> None:
    pages, frames = (sessions, tables.page_table.shape[1]), (sessions, tables.frame_table.shape[1])
    for name, tensor, size, dtype in (
        ("page_table", tables.page_table, pages, torch.int32),
        ("page_pos", tables.page_pos, pages, torch.int64),
        ("frame_table", tables.frame_table, frames, torch.int32),
        ("frame_pos", tables.frame_pos, frames, torch.int64),
        ("kept", tables.kept, (sessions,), torch.int64),
        ("sink_tokens", tables.sink_tokens, (sessions,), torch.int64),
        ("sink_start", tables.sink_start, (sessions,), torch.int64),
        ("start", tables.start, (sessions,), torch.int64),
        ("position", tables.position, (sessions,), torch.int64),
    ):
        expect(name, tensor, size, dtype, beside, Layout.DENSE)
