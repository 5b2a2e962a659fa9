"""A step's attention by the kernels: page tables and what each token sees go to the device once a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.attention import DecodeThenPrefill
from engine.cache.pages import Pages
from engine.decode_inputs import DecodeInputs, Staged, Staging, decode_row, splits_for
from engine.model.config import Scoring
from engine.model.decoder import Attend
from engine.scheduler import Schedule
from engine.session import Session
from engine.types import Position
from engine.window import Sight
from kernels.paged_attention import paged_decode
from kernels.paged_prefill import paged_prefill
from kernels.rope_store import store


class DecodeByKernel:
    """One token of each session, by `kernels.paged_attention`, in the layers of the native window number `window`.

    It reads nothing but `inputs`, where they lie, and its grid depends on shapes and `splits` alone: a CUDA graph of it
    stays valid whatever is written there.
    """

    def __init__(self, pages: Pages, inputs: DecodeInputs, window: int, scoring: Scoring, splits: int) -> None:
        self._pages, self._inputs, self._scoring, self._splits = pages, inputs, scoring, splits
        self._start, self._sink_start = inputs.start[window], inputs.sink_start[window]

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[rows, kv_heads, head_dim]`; returns `[rows, q_heads, head_dim]`."""
        k_pages, v_pages = self._pages.k[layer], self._pages.v[layer]
        store(k, v, self._inputs.slots, k_pages, v_pages)
        return paged_decode(
            q_window.contiguous(),
            q_sink.contiguous(),
            k_pages,
            v_pages,
            self._inputs.table,
            self._inputs.page_pos,
            self._inputs.sinks,
            self._start,
            self._inputs.position,
            sink_start=self._sink_start,
            scale=self._scoring.scale,
            cap=self._scoring.cap,
            splits=self._splits,
        )


class PageTables:
    """`DecodeTables` of pages as computed."""

    def __init__(self, pages: Pages, fields: Iterator[Staged], windows: int) -> None:
        self._pages, self._inputs = pages, DecodeInputs(fields, windows)

    def write(self, sessions: Sequence[Session], seen: Sequence[tuple[Sight, ...]]) -> None:
        """See `DecodeTables`."""
        self._inputs.write([decode_row(*each) for each in zip(sessions, seen, strict=True)])

    def attend(self, window: int, scoring: Scoring) -> DecodeByKernel:
        """See `DecodeTables`."""
        splits = splits_for(self._pages, *self._inputs.table.shape)
        return DecodeByKernel(self._pages, self._inputs, window, scoring, splits)


class PrefillByKernel:
    """The next tokens of one session, by `kernels.paged_prefill`; they attend before they are stored."""

    def __init__(self, pages: Pages, session: Session, seen: list[Sight], scoring: Scoring) -> None:
        self._pages, self._scoring = pages, scoring
        device = pages.k.device
        first, shape = session.position, session.shape
        held = _seen_entries(session, min(s.start for s in seen))
        self._table = torch.tensor([max(0, session.table[entry]) for entry in held], dtype=torch.int32, device=device)
        self._page_pos = _row([session.page_pos[entry] for entry in held], device)
        self._sinks, self._position = _row([shape.sinks], device), _row([first], device)
        self._sink_start = _row([s.sink for s in seen], device)
        self._start = _row([s.start for s in seen], device)
        ranges = session.slot_ranges(first, Position(first + len(seen)))
        slots = torch.cat([torch.arange(r.first, r.end) for r in ranges])
        # Of a chunk longer than the ring, the first tokens would be written over by the last.
        slots[: -shape.ring_tokens if first >= shape.sinks else 0] = -1
        self._slots = slots.to(device)

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[tokens, kv_heads, head_dim]`; returns `[tokens, q_heads, head_dim]`."""
        k_pages, v_pages = self._pages.k[layer], self._pages.v[layer]
        out = paged_prefill(
            q_window.contiguous(),
            q_sink.contiguous(),
            k,
            v,
            k_pages,
            v_pages,
            self._table,
            self._page_pos,
            self._sinks,
            self._start,
            self._position,
            sink_start=self._sink_start,
            scale=self._scoring.scale,
            cap=self._scoring.cap,
        )
        store(k, v, self._slots, k_pages, v_pages)
        return out


def by_kernel(pages: Pages, schedule: Schedule, rows: list[Sight], chunk: list[Sight], scoring: Scoring) -> Attend:
    """The Triton kernels: the GPU's way."""
    decode = _decode_once(pages, schedule.decode, rows, scoring) if schedule.decode else None
    prefill = schedule.prefill
    ahead = None if prefill is None else PrefillByKernel(pages, prefill.session, chunk, scoring)
    return DecodeThenPrefill(decode, len(schedule.decode), ahead)


def _decode_once(pages: Pages, sessions: list[Session], rows: list[Sight], scoring: Scoring) -> DecodeByKernel:
    """Decoding with inputs of this step's own."""
    longest = max(len(session.table) for session in sessions)
    staging = Staging(DecodeInputs.fields(len(sessions), longest, 1), pages.k.device)
    tables = PageTables(pages, iter(staging.fields), 1)
    with staging.writing():
        tables.write(sessions, [(seen,) for seen in rows])
    return tables.attend(0, scoring)


def _seen_entries(session: Session, start: Position) -> list[int]:
    """Entries of the page table that hold sinks, or a ring position from `start` on, before the next token."""
    shape = session.shape
    ring = range(shape.sink_pages, len(session.table))
    held = session.page_pos
    return [*range(shape.sink_pages), *(at for at in ring if held[at] >= 0 and start < held[at] + shape.page_size)]


def _row(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
