"""Attention over a paged window in plain torch. Kernels take it over where they can: `attention_gpu`, `attention_cpu`.

Decode reads the window in place: a session's visible slots are at most a few contiguous runs (the sinks, and the
ring before and after the page being written), so nothing is gathered and no slot outside them is touched; a page
that was never written may hold NaN. Prefill attends before it stores, so a chunk may overwrite pages that its own
first tokens still see, and no scratch pages are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.pages import Pages
from engine.model.config import Scoring
from engine.model.decoder import Attend
from engine.page_reader import PageReader
from engine.session import Session, SlotRange
from engine.types import Position
from engine.window import Sight, WindowShape


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One session's next token: where it goes and which slots it sees (its own included)."""

    slot: int
    sinks: list[SlotRange]
    window: list[SlotRange]


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Consecutive tokens of one session, all sinks or all ring.

    slots: where they go, `[tokens]`.
    sinks, window: slots of earlier tokens that some token of the chunk sees, `sink_count` of them sinks.
    positions: of all keys, those earlier ones and then the chunk's own, `[columns]`, ascending.
    seen: what each token sees; shape: of its session.
    """

    slots: Tensor
    sinks: list[SlotRange]
    window: list[SlotRange]
    sink_count: int
    positions: Tensor
    seen: list[Sight]
    shape: WindowShape

    @property
    def earlier(self) -> list[SlotRange]:
        """The slots of all earlier tokens."""
        return self.sinks + self.window

    def hidden(self) -> Tensor:
        """`[tokens, columns]`, True where a token does not see that key."""
        own = self.positions[-len(self.seen) :]
        return ~seen_keys(self.positions, own, self.seen, self.shape.sinks)


def decode_row(session: Session, seen: Sight, t: Position) -> DecodeRow:
    """The plan for the token at `t`, which sees `seen`; what lies between `session.position` and it is written too."""
    sinks = session.shape.sinks
    return DecodeRow(
        slot=session.slot(t),
        sinks=session.slot_ranges(seen.sink, Position(min(sinks, t + 1))),
        window=session.slot_ranges(seen.start, Position(t + 1)) if t >= sinks else [],
    )


def prefill_chunk(session: Session, seen: list[Sight]) -> PrefillChunk:
    """The plan for the next `len(seen)` tokens; `seen[i]` is what the i-th sees."""
    first, count, sinks = session.position, len(seen), session.shape.sinks
    end = Position(first + count)
    ranges = session.slot_ranges(first, end)
    slots = torch.cat([torch.arange(r.first, r.end) for r in ranges])
    own = torch.arange(first, end)
    sink, start = min(s.sink for s in seen), min(s.start for s in seen)
    if first < sinks:
        earlier, sink_count = torch.arange(sink, first), first - sink
        sink_ranges, window_ranges = session.slot_ranges(sink, first), []
    else:
        earlier = torch.cat((torch.arange(sink, sinks), torch.arange(start, first)))
        sink_count = sinks - sink
        sink_ranges = session.slot_ranges(sink, Position(sinks))
        window_ranges = session.slot_ranges(start, first)
    keys = torch.cat((earlier, own))
    return PrefillChunk(slots, sink_ranges, window_ranges, sink_count, keys, seen, session.shape)


def seen_keys(keys: Tensor, own: Tensor, seen: list[Sight], sinks: int) -> Tensor:
    """`[tokens, keys]`: whether the tokens at `own`, which see `seen`, see the keys at positions `keys`."""
    sink_from, ring_from = (
        torch.tensor(begin)[:, None] for begin in zip(*((s.sink, s.start) for s in seen), strict=True)
    )
    return torch.where(keys < sinks, keys >= sink_from, keys >= ring_from) & (keys <= own[:, None])


def scored(products: Tensor, scoring: Scoring) -> Tensor:
    """Scores of the products of queries and keys, float32, in place."""
    scores = products.mul_(scoring.scale)
    return scores if scoring.cap is None else scores.div_(scoring.cap).tanh_().mul_(scoring.cap)


class DecodeInPlace:
    """One token of each session, over its runs of slots where they lie."""

    def __init__(self, pages: Pages, rows: list[DecodeRow], scoring: Scoring) -> None:
        self._pages, self._rows, self._scoring = pages, rows, scoring
        self._read = PageReader(pages)

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[sessions, kv_heads, head_dim]`; returns `[sessions, q_heads, head_dim]`."""
        k_slots, v_slots = self._pages.layer(layer)
        out = q_window.new_empty(q_window.shape)
        for index, row in enumerate(self._rows):
            self._pages.store(layer, row.slot, k[index], v[index])
            out[index] = self._row(row, q_window[index], q_sink[index], k_slots, v_slots)
        return out

    def _row(self, row: DecodeRow, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kv_heads, dim = k.shape[0], k.shape[2]
        window, sink = (q.view(kv_heads, -1, dim) for q in (q_window, q_sink))
        read = self._read
        runs = [(part, sink) for part in read.parts(row.sinks)] + [(part, window) for part in read.parts(row.window)]
        scores = [torch.bmm(q, read(k, r.first, r.end).mT) for r, q in runs]
        weights = torch.softmax(scored(torch.cat(scores, dim=-1).float(), self._scoring), dim=-1).to(q_window.dtype)
        mixed = torch.zeros_like(window)
        for share, (r, _) in zip(torch.split(weights, [r.end - r.first for r, _ in runs], dim=-1), runs, strict=True):
            mixed.baddbmm_(share, read(v, r.first, r.end))
        return mixed.view(-1, dim)


class PrefillInPlace:
    """The tokens of a chunk, over copies of what they see; they attend before they are stored."""

    def __init__(self, pages: Pages, chunk: PrefillChunk, scoring: Scoring) -> None:
        self._pages, self._chunk, self._scoring = pages, chunk, scoring
        self._slots, self._hidden = (t.to(pages.k.device) for t in (chunk.slots, chunk.hidden()))

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[tokens, kv_heads, head_dim]`; returns `[tokens, q_heads, head_dim]`."""
        k_slots, v_slots = self._pages.layer(layer)
        new_k, new_v = (self._pages.kept(new).transpose(0, 1) for new in (k, v))
        keys, values = (
            torch.cat([*(held[:, r.first : r.end].to(new.dtype) for r in self._chunk.earlier), new], dim=1)
            for held, new in ((k_slots, new_k), (v_slots, new_v))
        )
        out = attend_chunk(q_window, q_sink, keys, values, self._chunk.sink_count, self._hidden, self._scoring)
        self._pages.store(layer, self._slots, new_k, new_v)
        return out


def attend_chunk(
    q_window: Tensor, q_sink: Tensor, keys: Tensor, values: Tensor, sinks: int, hidden: Tensor, scoring: Scoring
) -> Tensor:
    """Consecutive tokens over keys and values `[kv_heads, columns, head_dim]`; returns `[tokens, q_heads, head_dim]`.

    The first `sinks` columns are scored with `q_sink`, the others with `q_window`, both `[tokens, q_heads, head_dim]`;
    `hidden` `[tokens, columns]` is True where a token does not see a column.
    """
    kv_heads, tokens, dim = keys.shape[0], q_window.shape[0], q_window.shape[2]
    group = q_window.shape[1] // kv_heads

    def products(q: Tensor, some_keys: Tensor) -> Tensor:
        rows = q.view(tokens, kv_heads, group, dim).permute(1, 2, 0, 3).reshape(kv_heads, group * tokens, dim)
        return torch.bmm(rows, some_keys.transpose(1, 2)).float().view(kv_heads, group, tokens, -1)

    if q_sink is q_window or sinks == 0:
        whole = products(q_window, keys)
    else:
        whole = torch.cat((products(q_sink, keys[:, :sinks]), products(q_window, keys[:, sinks:])), dim=-1)
    scores = scored(whole, scoring).masked_fill_(hidden, float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(values.dtype).view(kv_heads, group * tokens, -1)
    mixed = torch.bmm(weights, values).view(kv_heads, group, tokens, dim)
    return mixed.permute(2, 0, 1, 3).reshape(tokens, kv_heads * group, dim).contiguous()


class DecodeThenPrefill:
    """The `Attend` of one forward pass: `count` decode tokens first, then at most one chunk, each by its own."""

    def __init__(self, decode: Attend | None, count: int, prefill: Attend | None) -> None:
        self._decode, self._count, self._prefill = decode, count, prefill

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[tokens, kv_heads, head_dim]`; returns `[tokens, q_heads, head_dim]`."""
        n, parts = self._count, []
        if self._decode is not None:
            parts.append(self._decode(layer, q_window[:n], q_sink[:n], k[:n], v[:n]))
        if self._prefill is not None:
            window = q_window[n:]
            sink = window if q_sink is q_window else q_sink[n:]
            parts.append(self._prefill(layer, window, sink, k[n:], v[n:]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class AttentionByWindow:
    """The `Attend` of a model whose layers differ in their native windows: each layer's own among `attentions`."""

    def __init__(self, attentions: Mapping[int | None, Attend], windows: list[int | None]) -> None:
        self._of_layer = [attentions[window] for window in windows]

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As the layer's own."""
        return self._of_layer[layer](layer, q_window, q_sink, k, v)
