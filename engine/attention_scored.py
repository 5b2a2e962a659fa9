"""Attention over a ring whose pages are scored, in plain torch, and how much each page was looked at.

The pages that a ring holds stand side by side inside the cache, behind the sinks, whatever was recycled between them.
Keys stay as they were rotated, at their absolute positions; so the query is turned back, for each page, by the tokens
that were recycled between that page and its own. Tokens of one page see the same pages: a chunk is never longer, what
it recycles none of its tokens sees, and so it is stored first and read where it lies, like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention import scored
from engine.cache.pages import Pages
from engine.model.config import LayerConfig, ModelConfig, Scoring
from engine.model.rope import Rope, Rotation, rotate
from engine.page_reader import AT_ONCE, PageReader
from engine.session import Session, SlotRange
from engine.types import Position
from engine.window import full_pages, page_bounds


@dataclass(frozen=True, slots=True)
class PageRun:
    """Full pages of a ring that lie side by side in memory: slots [first, end), and how many of them, as many as are
    read at once."""

    first: int
    end: int
    pages: int


@dataclass(frozen=True, slots=True)
class ScoredPart:
    """Consecutive tokens of one session, all sinks or all of one page.

    slots: where they go, `[tokens]`.
    sinks: runs of sinks; own: the page of the tokens, up to the last of them; runs: the other pages of the ring.
    numbers: the page numbers of `runs`, in their order, and behind them that of `own`; empty for sinks.
    shifts: by how many positions the query is turned back for the sinks, and then for each page of `runs`.
    hidden: for each native window, `[tokens, columns]`, True where a token does not see a column; columns are sinks,
        runs and own, in this order.
    heat: `[pages of runs, own]`, to which each layer adds.
    """

    session: Session
    slots: Tensor
    sinks: list[SlotRange]
    runs: list[PageRun]
    own: list[SlotRange]
    numbers: list[int]
    shifts: list[int]
    hidden: dict[int | None, Tensor]
    heat: Tensor

    def warm(self, weights: Tensor) -> None:
        """Add the weights `[kv_heads, tokens, group, columns]` of a layer."""
        if not self.numbers:
            return
        sums, own = weights.sum(dim=(0, 1, 2)), sum(r.end - r.first for r in self.own)
        sinks = sum(r.end - r.first for r in self.sinks)
        pages = sums[sinks : len(sums) - own].view(-1, self.session.shape.page_size).sum(dim=-1)
        self.heat.add_(torch.cat((pages, sums[len(sums) - own :].sum()[None])))

    def give_heat(self) -> None:
        """Let the session's ring know, once all layers are through."""
        if self.numbers and self.session.ring is not None:
            self.session.ring.warm(dict(zip(self.numbers, self.heat.tolist(), strict=True)))


def scored_part(session: Session, count: int, windows: Sequence[int | None], device: torch.device) -> ScoredPart:
    """The plan for the next `count` tokens of a session, all sinks or all of one page."""
    shape, first = session.shape, session.position
    end, sinks = Position(first + count), Position(min(first + count, shape.sinks))
    numbers, others, begin, shifts = list[int](), list[int](), Position(end), [0]
    if first >= shape.sinks:
        number = full_pages(shape, first)
        others = _by_place(session, number)
        numbers, begin = [*others, number], page_bounds(shape, number)[0]
        recycled = _recycled_before(session, number)
        shifts = [recycled, *(recycled - _recycled_before(session, other) for other in others)]
    page = torch.arange(shape.page_size)
    in_cache = [page_bounds(shape, n)[0] - _recycled_before(session, n) + page for n in others]
    columns = torch.cat((torch.arange(sinks), *in_cache, torch.arange(begin, end) - shifts[0]))
    distance = torch.arange(first, end)[:, None] - shifts[0] - columns
    unseen = {w: (distance < 0) if w is None else (distance < 0) | (distance >= w) for w in windows}
    return ScoredPart(
        session=session,
        slots=torch.cat([torch.arange(r.first, r.end) for r in session.slot_ranges(first, end)]).to(device),
        sinks=session.slot_ranges(Position(0), sinks),
        runs=_runs(session, others),
        own=session.slot_ranges(begin, end),
        numbers=numbers,
        shifts=shifts,
        hidden={w: hidden.to(device) for w, hidden in unseen.items()},
        heat=torch.zeros(len(numbers), dtype=torch.float64, device=device),
    )


def _recycled_before(session: Session, number: int) -> int:
    """Tokens that were recycled before a page of the ring."""
    assert session.ring is not None
    shape, held = session.shape, sum(n < number for n in session.ring.live)
    return page_bounds(shape, number)[0] - shape.sinks - held * shape.page_size


def _by_place(session: Session, own: int) -> list[int]:
    """The other pages of the ring, as they follow each other in memory."""
    assert session.ring is not None
    return sorted(session.ring.live.keys() - {own}, key=lambda n: session.table[session.entry(n)])


def _runs(session: Session, numbers: list[int]) -> list[PageRun]:
    runs: list[PageRun] = []
    size = session.shape.page_size
    most = max(1, AT_ONCE // size)
    for number in numbers:
        low = session.table[session.entry(number)] * size
        if runs and runs[-1].end == low and runs[-1].pages < most:
            runs[-1] = PageRun(runs[-1].first, low + size, runs[-1].pages + 1)
        else:
            runs.append(PageRun(low, low + size, 1))
    return runs


class ScoredAttention:
    """The `Attend` of one forward pass over the tokens of `parts`, one after the other."""

    def __init__(self, pages: Pages, parts: list[ScoredPart], config: ModelConfig, ropes: list[Rope]) -> None:
        self._pages, self._parts, self._scoring = pages, parts, config.scoring
        self._kinds, self._read = config.layer_kinds, PageReader(pages)
        self._turns = [
            {kind: rope.turned_back(part.shifts) for kind, rope in zip(config.ropes, ropes, strict=True)}
            if any(part.shifts)
            else {}
            for part in parts
        ]

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k, v `[tokens, kv_heads, head_dim]`; returns `[tokens, q_heads, head_dim]`."""
        k_slots, v_slots = self._pages.layer(layer)
        kind, out, first = self._kinds[layer], q_window.new_empty(q_window.shape), 0
        for part, turns in zip(self._parts, self._turns, strict=True):
            end = first + len(part.slots)
            self._pages.store(layer, part.slots, *(new[first:end].transpose(0, 1) for new in (k, v)))
            turn = None if kind.rope is None else turns.get(kind.rope)
            out[first:end] = _attended(
                part, q_window[first:end], turn, kind, k_slots, v_slots, self._scoring, self._read
            )
            first = end
        return out


def _attended(
    part: ScoredPart, q: Tensor, turn: Rotation | None, kind: LayerConfig, k: Tensor, v: Tensor, scoring: Scoring,
    read: PageReader,
) -> Tensor:  # fmt: skip
    kv_heads, tokens, dim = k.shape[0], q.shape[0], q.shape[2]
    each = q.expand(len(part.shifts), *q.shape)
    each = each if turn is None else rotate(each, turn)
    # A row for each token and query head: `[sinks and pages, kv_heads, rows, head_dim]`.
    rows = each.view(len(part.shifts), tokens, kv_heads, -1, dim).transpose(1, 2).flatten(2, 3)
    own = q.view(tokens, kv_heads, -1, dim).transpose(0, 1).flatten(1, 2)
    sinks, own_runs = read.parts(part.sinks), read.parts(part.own)
    products, at = [torch.bmm(rows[0], read(k, r.first, r.end).mT) for r in sinks], 1
    for run in part.runs:
        products.append(_page_products(rows[at : at + run.pages], read(k, run.first, run.end)))
        at += run.pages
    products += [torch.bmm(own, read(k, r.first, r.end).mT) for r in own_runs]
    scores = scored(torch.cat(products, dim=-1).float(), scoring)
    scores = scores.view(kv_heads, tokens, -1, scores.shape[-1])
    weights = torch.softmax(scores.masked_fill_(part.hidden[kind.window][:, None], float("-inf")), dim=-1)
    part.warm(weights)
    ranges: list[SlotRange | PageRun] = [*sinks, *part.runs, *own_runs]
    shares = torch.split(weights.to(q.dtype).flatten(1, 2), [r.end - r.first for r in ranges], dim=-1)
    mixed = torch.zeros_like(own)
    for share, r in zip(shares, ranges, strict=True):
        mixed.baddbmm_(share, read(v, r.first, r.end))
    return mixed.view(kv_heads, tokens, -1, dim).transpose(0, 1).reshape(tokens, -1, dim)


def _page_products(rows: Tensor, keys: Tensor) -> Tensor:
    """Of each page's own rows `[pages, kv_heads, rows, head_dim]` and keys `[kv_heads, slots, head_dim]`:
    `[kv_heads, rows, slots]`. A head's pages are one matrix after the other in memory, so nothing is copied."""
    pages, heads, count, dim = rows.shape
    some = [torch.bmm(rows[:, head], keys[head].view(pages, -1, dim).mT) for head in range(heads)]
    return torch.stack(some).transpose(1, 2).reshape(heads, count, -1)
