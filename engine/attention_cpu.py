"""A prompt's chunk by the CPU's kernel, which reads the window block by block where it lies."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention import PrefillChunk
from engine.cache.pages import Pages
from engine.model.config import Scoring
from kernels.cpu.page_rows import PAGE_TYPES
from kernels.cpu.prefill_attention import DIMS, ChunkKeys, PrefillAttention, chunk_keys
from kernels.cpu.ready import compiled
from kernels.cpu.team import team


def prefills_by_kernel(pages: Pages, scoring: Scoring) -> bool:
    """Whether the kernel takes such pages and scores, and is there."""
    takes = pages.k.device.type == "cpu" and pages.k.dtype in PAGE_TYPES and pages.k.shape[-1] % DIMS == 0
    return takes and scoring.cap is None and compiled()


class PrefillByKernel:
    """The `Attend` of a chunk; its tokens attend before they are stored."""

    def __init__(self, pages: Pages, chunk: PrefillChunk, scoring: Scoring) -> None:
        self._pages, self._slots, self._scale = pages, chunk.slots, scoring.scale
        self._keys = keys_of(chunk)
        self._attend: PrefillAttention | None = None

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[tokens, kv_heads, head_dim]`; returns `[tokens, q_heads, head_dim]`."""
        if self._attend is None:
            kv_heads, dim = k.shape[1:]
            self._attend = PrefillAttention(kv_heads, q_window.shape[1] // kv_heads, dim, team())
        k_slots, v_slots = self._pages.layer(layer)
        k, v = self._pages.kept(k), self._pages.kept(v)
        out = self._attend(q_window, q_sink, (k, v), (k_slots, v_slots), self._keys, self._scale)
        self._pages.store(layer, self._slots, k.transpose(0, 1), v.transpose(0, 1))
        return out


def keys_of(chunk: PrefillChunk) -> ChunkKeys:
    """What the tokens of a chunk see, as the kernel takes it."""
    positions, tokens = chunk.positions, len(chunk.seen)
    # Tokens that are sinks themselves see sinks alone, with one query: nothing is apart for them.
    in_ring = int(positions[-1]) >= chunk.shape.sinks
    sinks = chunk.sink_count if in_ring else 0
    sink_from, ring_from = (
        torch.searchsorted(positions, torch.tensor(begin))
        for begin in zip(*((s.sink, s.start if in_ring else s.sink) for s in chunk.seen), strict=True)
    )
    until = torch.arange(len(positions) - tokens, len(positions)) + 1
    seen = torch.stack((sink_from, torch.full((tokens,), sinks), ring_from.clamp(min=sinks), until), dim=1)
    slots = torch.cat([torch.arange(r.first, r.end) for r in chunk.earlier] or [torch.empty(0, dtype=torch.long)])
    return chunk_keys(slots, positions, sinks, seen)
