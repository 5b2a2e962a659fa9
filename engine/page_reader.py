"""Reads slots of pages for attention in plain torch, in the type that it computes with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.pages import Pages
from engine.session import SlotRange
from engine.types import Slot

AT_ONCE = 256
"""Slots that are read at a time where they have to be put into another type: 196 kB of float32 for 3 heads of 64."""


class PageReader:
    """Rows where they lie, if that is the type that is computed with. float16 pages of a CPU are not (products of
    float16 are slow there and less exact): they are copied, into memory that the next read uses again."""

    def __init__(self, pages: Pages) -> None:
        self._converts = pages.k.dtype == torch.float16 and pages.k.device.type == "cpu"
        heads, dim = pages.k.shape[1], pages.k.shape[4]
        self._memory = torch.empty((heads, max(AT_ONCE, pages.page_size), dim)) if self._converts else None

    def parts(self, runs: Sequence[SlotRange]) -> list[SlotRange]:
        """The runs, cut so that each can be read at once."""
        if not self._converts:
            return list(runs)
        return [part for run in runs for part in _cut(run)]

    def __call__(self, held: Tensor, first: int, end: int) -> Tensor:
        """Slots [first, end) of `held` `[kv_heads, slots, head_dim]`, at most `AT_ONCE` or a page; good until the
        next call."""
        rows = held[:, first:end]
        return rows if self._memory is None else self._memory[:, : end - first].copy_(rows)


def _cut(run: SlotRange) -> list[SlotRange]:
    return [SlotRange(Slot(first), Slot(min(first + AT_ONCE, run.end))) for first in range(run.first, run.end, AT_ONCE)]
