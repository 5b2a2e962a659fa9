"""Attention over packed pages in plain torch: the CPU's path. A GPU reads prompts this way too and decodes by
`attention_packed_gpu`.

A token sees the pages that its session keeps as computed, and its own page, as they were computed; every other page
as it comes back from its format, whether that page was read long ago or a moment ago in the same chunk. What a token
sees so never depends on how a prompt was cut into chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention import DecodeThenPrefill, attend_chunk, scored, seen_keys
from engine.attention_packed_gpu import packed_decode_by_kernel
from engine.cache.formats.rows import Rows, dequantise
from engine.cache.kv_cache import kept_pages
from engine.cache.packed import PackedPages, PackedRows
from engine.model.config import Scoring
from engine.model.decoder import Attend
from engine.scheduler import Schedule
from engine.session import Session
from engine.types import Position
from engine.window import Sight, WindowShape, full_pages, page_bounds
from kernels.runtime import serves


@dataclass(frozen=True, slots=True)
class FrameRun:
    """A contiguous run of slots [first, end) in the frames."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class PackedRun:
    """A contiguous run of slots [first, end) in the packed pages."""

    first: int
    end: int


Run = FrameRun | PackedRun


@dataclass(frozen=True, slots=True)
class PackedDecodeRow:
    """One session's next token: the frame slot it goes to, and the runs it sees, its own slot included."""

    slot: int
    sinks: list[Run]
    window: list[Run]


@dataclass(frozen=True, slots=True)
class PackedChunk:
    """Consecutive tokens of one session, all sinks or all ring.

    sinks, window: runs of earlier tokens that some token of the chunk sees.
    begun: the earlier tokens of a page that the chunk makes full and that is packed then.
    packed, packed_own: the slots of all tokens that are packed then, those of `begun` first, and which of the chunk's
        they are.
    framed: which of the chunk's tokens go to frames, and `frame_slots`, where.
    hidden: `[tokens, sinks + window + packed + tokens]`, True where a token does not see that key in that form.
    """

    sinks: list[Run]
    window: list[Run]
    begun: list[Run]
    packed: Tensor
    packed_own: slice
    framed: Tensor
    frame_slots: Tensor
    sink_count: int
    hidden: Tensor


def runs(pages: PackedPages, session: Session, first: Position, end: Position) -> list[Run]:
    """Where positions [first, end) lie, oldest first: tokens that are computed, or the next one."""
    found: list[Run] = []
    shape, t = session.shape, first
    own = full_pages(shape, session.position)
    while t < end:
        number = full_pages(shape, t)
        page_end, slot = min(end, page_bounds(shape, number)[1]), session.slot(t)
        framed = number < kept_pages(pages, shape) or number == own
        low = pages.frame_slot(slot) if framed else int(slot)
        kind, high = FrameRun if framed else PackedRun, low + page_end - t
        if found and isinstance(found[-1], kind) and found[-1].end == low:
            found[-1] = kind(found[-1].first, high)
        else:
            found.append(kind(low, high))
        t = Position(page_end)
    return found


def decode_row(pages: PackedPages, session: Session, seen: Sight) -> PackedDecodeRow:
    """The plan for the token at `session.position`, which sees `seen`."""
    t, shape = session.position, session.shape
    return PackedDecodeRow(
        slot=pages.frame_slot(session.slot(t)),
        sinks=runs(pages, session, seen.sink, Position(min(shape.sinks, t + 1))),
        window=runs(pages, session, seen.start, Position(t + 1)) if t >= shape.sinks else [],
    )


def pack_full(pages: PackedPages, sessions: list[Session]) -> None:
    """Pack the pages that the next token of these sessions made full, once all layers have computed it. (A prompt's
    chunk packs what it fills by itself: its later tokens see those pages packed.)"""
    for session in sessions:
        t, shape = session.position, session.shape
        number = full_pages(shape, t)
        first, end = page_bounds(shape, number)
        if end == t + 1 and number >= kept_pages(pages, shape):
            pages.pack(session.table[session.entry(number)], end - first)


def prefill_chunk(pages: PackedPages, session: Session, seen: list[Sight], device: torch.device) -> PackedChunk:
    """The plan for the next `len(seen)` tokens; `seen[i]` is what the i-th sees."""
    shape, first = session.shape, session.position
    end, kept = Position(first + len(seen)), kept_pages(pages, shape)
    sink, start = min(s.sink for s in seen), min(s.start for s in seen)
    sinks_end = Position(min(first, shape.sinks))
    earlier = torch.arange(sink, sinks_end)
    window_runs: list[Run] = []
    if first >= shape.sinks:
        earlier = torch.cat((earlier, torch.arange(start, first)))
        window_runs = runs(pages, session, start, first)
    # Packed are the pages that are full by the end of the chunk, from the one that its first token is in.
    filled = [n for n in range(full_pages(shape, first), full_pages(shape, end)) if n >= kept]
    low, high = (session.held(filled[0])[0], page_bounds(shape, filled[-1])[1]) if filled else (first, first)
    begun = runs(pages, session, low, first) if low < first else []
    own = torch.arange(first, end)
    to_frame = (own < low) | (own >= high)
    keys = torch.cat((earlier, torch.arange(low, high), own))
    number, own_number = _page_numbers(shape, keys), _page_numbers(shape, own)
    form = (number >= kept) & (number != own_number[0])
    form[len(earlier) :] = False
    form[len(earlier) : len(keys) - len(own)] = True
    packed = (number >= kept) & (number != own_number[:, None])
    visible = seen_keys(keys, own, seen, shape.sinks)
    return PackedChunk(
        sinks=runs(pages, session, sink, sinks_end),
        window=window_runs,
        begun=begun,
        packed=torch.tensor([session.slot(Position(t)) for t in range(low, high)], dtype=torch.int64, device=device),
        packed_own=slice(max(0, low - first), high - first),
        framed=to_frame.nonzero().squeeze(1).to(device),
        frame_slots=torch.tensor(
            [pages.frame_slot(session.slot(Position(int(t)))) for t in own[to_frame]], dtype=torch.int64, device=device
        ),
        sink_count=sinks_end - sink,
        hidden=~(visible & (packed == form)).to(device),
    )


def _page_numbers(shape: WindowShape, positions: Tensor) -> Tensor:
    in_ring = shape.sink_pages + (positions - shape.sinks).div(shape.page_size, rounding_mode="floor")
    return torch.where(positions < shape.sinks, positions // shape.page_size, in_ring)


class PackedDecodeInPlace:
    """One token of each session, over its runs where they lie. All rows come rotated."""

    def __init__(self, pages: PackedPages, rows: list[PackedDecodeRow], scoring: Scoring) -> None:
        self._pages, self._rows, self._scoring = pages, rows, scoring

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[sessions, kv_heads, head_dim]`; returns `[sessions, q_heads, head_dim]`."""
        out = q_window.new_empty(q_window.shape)
        frames_k, frames_v = self._pages.layer(layer)
        for index, row in enumerate(self._rows):
            frames_k[:, row.slot] = k[index]
            frames_v[:, row.slot] = v[index]
            out[index] = self._decode(layer, row, q_window[index], q_sink[index])
        return out

    def _decode(self, layer: int, row: PackedDecodeRow, q_window: Tensor, q_sink: Tensor) -> Tensor:
        heads, dim = self._pages.tile.shape[0], self._pages.tile.shape[2]
        window, sink = (q.view(heads, -1, dim) for q in (q_window, q_sink))
        scores = [self._scores(layer, run, sink) for run in row.sinks]
        scores += [self._scores(layer, run, window) for run in row.window]
        weights = torch.softmax(scored(torch.cat(scores, dim=-1), self._scoring), dim=-1)
        mixed = q_window.new_zeros((heads, window.shape[1], dim))
        parts = torch.split(weights, [part.shape[-1] for part in scores], dim=-1)
        for run, part in zip([*row.sinks, *row.window], parts, strict=True):
            self._mix(layer, run, part, mixed)
        return mixed.view(-1, dim)

    def _scores(self, layer: int, run: Run, q: Tensor) -> Tensor:
        """q·k, float32 `[kv_heads, group, slots]`. The scale of a packed row is multiplied into its score."""
        if isinstance(run, FrameRun):
            return torch.bmm(q, self._pages.layer(layer)[0][:, run.first : run.end].mT).float()
        rows = self._pages.keys
        parts = [torch.bmm(q, self._unscaled(rows, layer, tile).mT).float() for tile in self._tiles(run)]
        return torch.cat(parts, dim=-1).mul_(rows.scales[layer][:, None, run.first : run.end])

    def _mix(self, layer: int, run: Run, weights: Tensor, mixed: Tensor) -> None:
        """Add the weighted values to `mixed` `[kv_heads, group, head_dim]`; scales are multiplied into the weights."""
        if isinstance(run, FrameRun):
            mixed.baddbmm_(weights.to(mixed.dtype), self._pages.layer(layer)[1][:, run.first : run.end])
            return
        rows = self._pages.values
        scaled = (weights * rows.scales[layer][:, None, run.first : run.end]).to(mixed.dtype)
        for tile in self._tiles(run):
            part = scaled[..., tile.first - run.first : tile.end - run.first]
            mixed.baddbmm_(part, self._unscaled(rows, layer, tile))

    def _tiles(self, run: PackedRun) -> list[PackedRun]:
        size = self._pages.tile.shape[1]
        return [PackedRun(first, min(run.end, first + size)) for first in range(run.first, run.end, size)]

    def _unscaled(self, rows: PackedRows, layer: int, tile: PackedRun) -> Tensor:
        """The tile's rows without their scales, in memory that the next tile uses again."""
        out = self._pages.tile[:, : tile.end - tile.first]
        rows.quantiser.unscaled(rows.codes[layer][:, tile.first : tile.end], out)
        return out


class PackedPrefill:
    """The tokens of a chunk; they attend before they are stored. All rows come rotated."""

    def __init__(self, pages: PackedPages, chunk: PackedChunk, scoring: Scoring) -> None:
        self._pages, self._chunk, self._scoring = pages, chunk, scoring

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[tokens, kv_heads, head_dim]`; returns `[tokens, q_heads, head_dim]`."""
        pages, chunk = self._pages, self._chunk
        frames = pages.layer(layer)
        new_k, new_v = k.transpose(0, 1), v.transpose(0, 1)
        keys = self._columns(layer, chunk, pages.keys, frames[0], new_k)
        values = self._columns(layer, chunk, pages.values, frames[1], new_v)
        for frame, new in zip(frames, (new_k, new_v), strict=True):
            frame[:, chunk.frame_slots] = new[:, chunk.framed]
        return attend_chunk(q_window, q_sink, keys, values, chunk.sink_count, chunk.hidden, self._scoring)

    def _columns(self, layer: int, chunk: PackedChunk, rows: PackedRows, frames: Tensor, new: Tensor) -> Tensor:
        """All rows that the chunk may see, `[kv_heads, columns, head_dim]`, in the order of `PackedChunk.hidden`. Pages
        that the chunk makes full are packed on the way, after what lies in their places was read."""
        earlier = [self._read(layer, rows, frames, run) for run in (*chunk.sinks, *chunk.window)]
        if not len(chunk.packed):
            return torch.cat((*earlier, new), dim=1)
        begun = [self._read(layer, rows, frames, run) for run in chunk.begun]
        full = torch.cat((*begun, new[:, chunk.packed_own]), dim=1)
        dequantise(rows.quantiser, rows.pack_layer(layer, chunk.packed, full), full)
        return torch.cat((*earlier, full, new), dim=1)

    def _read(self, layer: int, rows: PackedRows, frames: Tensor, run: Run) -> Tensor:
        """The run's rows `[kv_heads, slots, head_dim]`."""
        if isinstance(run, FrameRun):
            return frames[:, run.first : run.end]
        codes, scales = (memory[layer][:, run.first : run.end] for memory in (rows.codes, rows.scales))
        out = frames.new_empty((*scales.shape, frames.shape[-1]))
        dequantise(rows.quantiser, Rows(codes, scales), out)
        return out


class Rotated:
    """The `Attend` around one whose pages hold rotated rows: turns q, k and v on the way in and the mix back."""

    def __init__(self, attend: Attend, matrix: Tensor) -> None:
        self._attend, self._matrix = attend, matrix

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `Attend`."""
        window = self._turn(q_window, self._matrix)
        sink = window if q_sink is q_window else self._turn(q_sink, self._matrix)
        mixed = self._attend(layer, window, sink, self._turn(k, self._matrix), self._turn(v, self._matrix))
        return self._turn(mixed, self._matrix.T)

    def _turn(self, rows: Tensor, matrix: Tensor) -> Tensor:
        # In float32: in bfloat16 the matrix of a head of 128 is off by 0.2 %, all its entries alike.
        return (rows.float() @ matrix).to(rows.dtype)


def packed_attention(
    pages: PackedPages, schedule: Schedule, rows: list[Sight], chunk: list[Sight], scoring: Scoring
) -> Attend:
    """The `Attend` of a step: the next token of each session that decodes sees `rows`, the tokens of the prompt's chunk
    see `chunk`."""
    sessions, prefill = schedule.decode, schedule.prefill
    decode: Attend | None = None
    if sessions and serves(pages.k.device):
        decode = packed_decode_by_kernel(pages, sessions, rows, scoring)
    elif sessions:
        plans = [decode_row(pages, session, seen) for session, seen in zip(sessions, rows, strict=True)]
        decode = PackedDecodeInPlace(pages, plans, scoring)
    ahead = None
    if prefill is not None:
        ahead = PackedPrefill(pages, prefill_chunk(pages, prefill.session, chunk, pages.k.device), scoring)
    return Rotated(DecodeThenPrefill(decode, len(sessions), ahead), pages.rotation)
