"""What the decode kernels read of a step: planned on the host, and sent to the device in one copy.

The tensors stay where they are from step to step when they are kept, as a captured CUDA graph needs them to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engine.cache.pages import Pages
from engine.model.config import Scoring
from engine.model.decoder import Attend
from engine.session import Session
from engine.types import Position
from engine.window import Sight
from kernels.flash import decode_splits

_ALIGNED = 64
"""Bytes. Triton compiles a kernel for pointers that are multiples of 16, and another for those that are not."""


@dataclass(frozen=True, slots=True)
class Field:
    """A tensor that is wanted in a buffer."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Room for it and up to the next aligned place."""
        return -(-math.prod(self.shape) * self.dtype.itemsize // _ALIGNED) * _ALIGNED


@dataclass(frozen=True, slots=True)
class Staged:
    """One tensor: `host` is where its values are written, `device` where kernels read them once they are sent."""

    host: np.ndarray[Any, Any]
    device: Tensor


class Staging:
    """Tensors that lie in one buffer on the host (pinned beside a GPU) and in one of the same layout on the device."""

    def __init__(self, wanted: Sequence[Field], device: torch.device) -> None:
        size, on_gpu = sum(field.bytes for field in wanted), device.type == "cuda"
        self._host = torch.zeros(size, dtype=torch.uint8, pin_memory=on_gpu)
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self._sent = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self.fields: list[Staged] = []
        first = 0
        for field in wanted:
            end = first + math.prod(field.shape) * field.dtype.itemsize
            host, on_device = (t[first:end].view(field.dtype).view(field.shape) for t in (self._host, self._device))
            self.fields.append(Staged(host.numpy(), on_device))
            first += field.bytes

    @property
    def bytes(self) -> int:
        """Bytes of each of the two buffers."""
        return self._host.nbytes

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write all of the `host` tensors inside; afterwards they are sent, in order with the device's work."""
        if self._sent is not None:
            self._sent.synchronize()  # the copy before this one may still be reading what is about to be written over
        yield
        self._device.copy_(self._host, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """The next token of one session: its page table and `page_pos` as they are once it is stored, its position and
    slot, and what it sees in the layers of each native window."""

    table: list[int]
    page_pos: list[int]
    sinks: int
    position: Position
    slot: int
    seen: tuple[Sight, ...]


def decode_row(session: Session, seen: tuple[Sight, ...]) -> DecodeRow:
    """The plan for the next token of a session, which sees `seen`."""
    t, shape = session.position, session.shape
    held: list[int] = list(session.page_pos)
    held[shape.table_index(t)] = shape.page_start(t)
    return DecodeRow([*session.next_table()], held, shape.sinks, t, session.slot(t), seen)


class DecodeInputs:
    """The plans of up to `rows` sessions whose page tables have at most `table_len` entries, on the device.

    table int32, page_pos int64: `[rows, table_len]`; sinks, position, slots int64 `[rows]`; start, sink_start int64
    `[rows]`, one for each native window. Arguments of `kernels.paged_attention` and `kernels.rope_store`.
    """

    def __init__(self, fields: Iterator[Staged], windows: int) -> None:
        self._table, self._page_pos = next(fields), next(fields)
        self._sinks, self._position, self._slots = next(fields), next(fields), next(fields)
        self._start = [next(fields) for _ in range(windows)]
        self._sink_start = [next(fields) for _ in range(windows)]
        self.table, self.page_pos = self._table.device, self._page_pos.device
        self.sinks, self.position, self.slots = self._sinks.device, self._position.device, self._slots.device
        self.start = [staged.device for staged in self._start]
        self.sink_start = [staged.device for staged in self._sink_start]

    @staticmethod
    def fields(rows: int, table_len: int, windows: int) -> list[Field]:
        """What it takes of a staging, in this order."""
        table, row = (rows, table_len), Field((rows,), torch.int64)
        return [Field(table, torch.int32), Field(table, torch.int64), *[row] * (3 + 2 * windows)]

    def write(self, plans: Sequence[DecodeRow]) -> None:
        """Write the plans. Rows beyond them are unused: no page and position -1, so that they see nothing, and slot -1,
        so that they are stored nowhere."""
        for staged, unused in (
            (self._table, 0), (self._page_pos, -1), (self._sinks, 0), (self._position, -1), (self._slots, -1),
            *((staged, 0) for staged in (*self._start, *self._sink_start)),
        ):  # fmt: skip
            staged.host.fill(unused)
        for index, plan in enumerate(plans):
            entries = len(plan.table)
            self._table.host[index, :entries] = plan.table
            self._page_pos.host[index, :entries] = plan.page_pos
            self._sinks.host[index] = plan.sinks
            self._position.host[index] = plan.position
            self._slots.host[index] = plan.slot
            for start, sink_start, seen in zip(self._start, self._sink_start, plan.seen, strict=True):
                start.host[index], sink_start.host[index] = seen.start, seen.sink
        np.maximum(self._table.host, 0, out=self._table.host)  # an entry that was never used names no page


class DecodeTables(Protocol):
    """Where the pages of sessions lie that decode, at fixed places, in the form that pages are kept in."""

    def write(self, sessions: Sequence[Session], seen: Sequence[tuple[Sight, ...]]) -> None:
        """Write, inside `Staging.writing`, where the pages of each session lie and what its next token sees in the
        layers of each native window. Rows beyond them are unused, as `DecodeInputs.write` has it."""

    def attend(self, window: int, scoring: Scoring) -> Attend:
        """The attention of the layers of native window number `window`; it reads nothing but what is written."""


def splits_for(pages: Pages, rows: int, table_len: int) -> int:
    """The splits of `paged_decode` for so many rows: by shapes and the device alone, so that a graph may keep them."""
    device, (_, kv_heads, _, page_size, _) = pages.k.device, pages.k.shape
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    return decode_splits(rows, kv_heads, table_len, page_size, processors)
