"""The decode rows of a step by the paged attention kernel: the page tables go to the device once a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.pages import Pages
from engine.model.config import Scoring
from engine.session import Session
from engine.window import Sight
from kernels.paged_attention import decode_splits, paged_decode


class DecodeByKernel:
    """One token of each session, by `kernels.paged_attention`."""

    def __init__(self, pages: Pages, sessions: list[Session], seen: list[Sight], scoring: Scoring) -> None:
        self._pages, self._scoring = pages, scoring
        device = pages.k.device
        longest = max(len(session.table) for session in sessions)
        self._table = torch.tensor(
            [[max(0, page) for page in _padded(session.next_table(), longest)] for session in sessions],
            dtype=torch.int32,
            device=device,
        )
        self._page_pos = torch.tensor([_page_pos(s, longest) for s in sessions], dtype=torch.int64, device=device)
        self._sinks = _row([s.shape.sinks for s in sessions], device)
        self._sink_start = _row([s.sink for s in seen], device)
        self._start = _row([s.start for s in seen], device)
        self._position = _row([s.position for s in sessions], device)
        self._slots = _row([s.slot(s.position) for s in sessions], device)
        processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        self._splits = decode_splits(len(sessions), pages.k.shape[1], longest, pages.page_size, processors)

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[sessions, kv_heads, head_dim]`; returns `[sessions, q_heads, head_dim]`."""
        k_slots, v_slots = self._pages.layer(layer)
        k_slots[:, self._slots] = k.transpose(0, 1)
        v_slots[:, self._slots] = v.transpose(0, 1)
        return paged_decode(
            q_window.contiguous(),
            q_sink.contiguous(),
            self._pages.k[layer],
            self._pages.v[layer],
            self._table,
            self._page_pos,
            self._sinks,
            self._start,
            self._position,
            sink_start=self._sink_start,
            scale=self._scoring.scale,
            cap=self._scoring.cap,
            splits=self._splits,
        )


def _page_pos(session: Session, longest: int) -> list[int]:
    """`page_pos` as it is once the token at `session.position` is stored, padded to `longest`."""
    t = session.position
    held = list(session.page_pos)
    held[session.shape.table_index(t)] = session.shape.page_start(t)
    return _padded(held, longest)


def _padded(row: Sequence[int], longest: int) -> list[int]:
    """A row of the table as long as the longest; -1 stands for a page that holds nothing."""
    return [*row, *([-1] * (longest - len(row)))]


def _row(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
