"""Decoding over packed pages by the kernel: where each session's pages lie goes to the device once a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.cache.kv_cache import kept_pages
from engine.cache.packed import PackedPages, PackedRows
from engine.decode_inputs import DecodeInputs, DecodeRow, Field, Staged, Staging, decode_row, splits_for
from engine.model.config import Scoring
from engine.session import Session
from engine.types import PageId
from engine.window import Sight
from kernels import packed_pages
from kernels.paged_attention_packed import FRAME_SPLITS, paged_decode_packed
from kernels.rope_store import store


@dataclass(frozen=True, slots=True)
class FrameRow:
    """The frames of one session, its first `kept` sink pages and then the page being written, and the positions at
    which they begin, -1 for those that are not written yet."""

    frames: list[int]
    begin: list[int]
    kept: int


def packed_row(pages: PackedPages, session: Session, seen: tuple[Sight, ...]) -> tuple[DecodeRow, FrameRow]:
    """The plan for the next token of a session, which sees `seen`: pages that lie in frames are no pages of the first,
    and its slot is one of the frames."""
    plan, kept = decode_row(session, seen), kept_pages(pages, session.shape)
    own, page_pos = session.shape.table_index(session.position), list(plan.page_pos)
    frames, begin = [0] * (kept + 1), [-1] * (kept + 1)
    for place in {*range(kept), own}:
        if page_pos[place] >= 0:
            at = min(place, kept)
            frames[at], begin[at] = pages.frame(PageId(plan.table[place])), page_pos[place]
            page_pos[place] = -1
    return replace(plan, page_pos=page_pos, slot=pages.frame_slot(plan.slot)), FrameRow(frames, begin, kept)


class FrameInputs:
    """The frames of up to `rows` sessions, on the device: `table` int32 and `begin` int64 `[rows, frames]`, `kept`
    int64 `[rows]`, as `kernels.packed_pages` has them."""

    def __init__(self, fields: Iterator[Staged]) -> None:
        self._table, self._begin, self._kept = next(fields), next(fields), next(fields)
        self.table, self.begin, self.kept = self._table.device, self._begin.device, self._kept.device

    @staticmethod
    def fields(rows: int, frames: int) -> list[Field]:
        """What it takes of a staging, in this order."""
        return [Field((rows, frames), torch.int32), Field((rows, frames), torch.int64), Field((rows,), torch.int64)]

    def write(self, plans: Sequence[FrameRow]) -> None:
        """Write the plans; rows beyond them hold nothing."""
        for staged, unused in ((self._table, 0), (self._begin, -1), (self._kept, 0)):
            staged.host.fill(unused)
        for index, plan in enumerate(plans):
            self._table.host[index, : len(plan.frames)] = plan.frames
            self._begin.host[index, : len(plan.begin)] = plan.begin
            self._kept.host[index] = plan.kept


class PackedDecodeByKernel:
    """One token of each session, by `kernels.paged_attention_packed`, in the layers of the native window number
    `window`. All rows come rotated. It reads nothing but its inputs, and its grid depends on shapes alone."""

    def __init__(
        self, pages: PackedPages, inputs: DecodeInputs, frames: FrameInputs, window: int, scoring: Scoring
    ) -> None:
        self._pages, self._slots, self._scoring = pages, inputs.slots, scoring
        self._splits = max(FRAME_SPLITS + 1, splits_for(pages, *inputs.table.shape))
        self._tables = packed_pages.PackedTables(
            inputs.table,
            inputs.page_pos,
            frames.table,
            frames.begin,
            frames.kept,
            inputs.sinks,
            inputs.sink_start[window],
            inputs.start[window],
            inputs.position,
        )

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[rows, kv_heads, head_dim]`; returns `[rows, q_heads, head_dim]`."""
        pages = self._pages
        k_frames, v_frames = pages.k[layer], pages.v[layer]
        store(k, v, self._slots, k_frames, v_frames)
        return paged_decode_packed(
            q_window.contiguous(),
            q_sink.contiguous(),
            k_frames,
            v_frames,
            _of_layer(pages.keys, layer),
            _of_layer(pages.values, layer),
            self._tables,
            magnitudes=pages.keys.magnitudes,
            scale=self._scoring.scale,
            cap=self._scoring.cap,
            splits=self._splits,
        )


def _of_layer(rows: PackedRows, layer: int) -> packed_pages.PackedRows:
    return packed_pages.PackedRows(rows.codes[layer], rows.scales[layer], rows.quantiser.packing)


class PackedPageTables:
    """`DecodeTables` of packed pages and their frames. All rows come rotated."""

    def __init__(self, pages: PackedPages, fields: Iterator[Staged], windows: int) -> None:
        self._pages, self._inputs, self._frames = pages, DecodeInputs(fields, windows), FrameInputs(fields)

    @staticmethod
    def fields(pages: PackedPages, rows: int, table_len: int, windows: int) -> list[Field]:
        """What it takes of a staging, in this order."""
        return [*DecodeInputs.fields(rows, table_len, windows), *FrameInputs.fields(rows, pages.kept_pages + 1)]

    def write(self, sessions: Sequence[Session], seen: Sequence[tuple[Sight, ...]]) -> None:
        """See `DecodeTables`."""
        plans = [packed_row(self._pages, *each) for each in zip(sessions, seen, strict=True)]
        self._inputs.write([row for row, _ in plans])
        self._frames.write([frames for _, frames in plans])

    def attend(self, window: int, scoring: Scoring) -> PackedDecodeByKernel:
        """See `DecodeTables`."""
        return PackedDecodeByKernel(self._pages, self._inputs, self._frames, window, scoring)


def packed_decode_by_kernel(
    pages: PackedPages, sessions: list[Session], seen: list[Sight], scoring: Scoring
) -> PackedDecodeByKernel:
    """Decoding with inputs of this step's own; the next token of each session sees `seen`."""
    longest = max(len(session.table) for session in sessions)
    staging = Staging(PackedPageTables.fields(pages, len(sessions), longest, 1), pages.k.device)
    tables = PackedPageTables(pages, iter(staging.fields), 1)
    with staging.writing():
        tables.write(sessions, [(one,) for one in seen])
    return tables.attend(0, scoring)
