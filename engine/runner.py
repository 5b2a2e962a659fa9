"""Runs a schedule through the decoder, eagerly: plan the attention, one forward pass, move the sessions on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from engine.attention import (
    AttentionByWindow,
    DecodeInPlace,
    DecodeThenPrefill,
    PrefillInPlace,
    decode_row,
    prefill_chunk,
)
from engine.attention_cpu import PrefillByKernel, prefills_by_kernel
from engine.attention_gpu import by_kernel
from engine.attention_packed import pack_full, packed_attention
from engine.attention_scored import ScoredAttention, ScoredPart, scored_part
from engine.cache.packed import PackedPages
from engine.cache.pages import Pages
from engine.fused import fused_layers, slots_seen
from engine.model.config import Scoring
from engine.model.decoder import Attend, Decoder, Phases
from engine.model.rope import Rope
from engine.policy import Policy
from engine.scheduler import Prefill, Schedule
from engine.session import EvictedSpan, Session
from engine.types import Position
from engine.window import Sight, sight, sink_phase
from kernels.cpu.ready import compiled


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was computed for guessed tokens: the logits after each, `[tokens, vocab]`, and where its window begins."""

    tokens: tuple[int, ...]
    logits: Tensor
    starts: list[Position]


@dataclass(frozen=True, slots=True)
class Computed:
    """What one session got from a step in which `count` of its tokens were computed: logits after the last of them
    `[vocab]`, and what left its window.

    `ahead` are guesses; the session moves on over those that prove right.
    """

    session: Session
    count: int
    logits: Tensor
    evicted: EvictedSpan | None
    ahead: Ahead | None = None


PlanAttention = Callable[[Schedule, list[Sight], list[Sight], Scoring], Attend]
"""plan(schedule, what each decoding session's token sees, what each token of the chunk sees, scoring)."""


def in_place(pages: Pages, schedule: Schedule, rows: list[Sight], chunk: list[Sight], scoring: Scoring) -> Attend:
    """Where the pages lie: the CPU's way."""
    decode = [decode_row(session, seen, session.position) for session, seen in zip(schedule.decode, rows, strict=True)]
    attend = DecodeInPlace(pages, decode, scoring) if decode else None
    if schedule.prefill is None:
        return DecodeThenPrefill(attend, len(decode), None)
    ahead = prefill_chunk(schedule.prefill.session, chunk)
    by = PrefillByKernel if prefills_by_kernel(pages, scoring) else PrefillInPlace
    return DecodeThenPrefill(attend, len(decode), by(pages, ahead, scoring))


class EagerRunner:
    """One decoder, one set of pages. `plan` says how a step is attended: as the device and the pages allow."""

    def __init__(self, decoder: Decoder, pages: Pages, device: torch.device, plan: PlanAttention | None = None) -> None:
        self._decoder, self._pages, self._device = decoder, pages, device
        self._plan = plan or _plan_for(pages)
        self._ropes = [Rope(rope, decoder.config.head_dim, device) for rope in decoder.config.ropes]
        self._fused = fused_layers(decoder, pages) if plan is None else None
        self._windows = [kind.window for kind in decoder.config.layer_kinds]

    @torch.inference_mode()
    def run(self, schedule: Schedule) -> list[Computed]:
        """Compute the scheduled tokens. Sessions move on only when the pass has succeeded."""
        parts = [Prefill(session, 1) for session in schedule.decode]
        parts += [schedule.prefill] if schedule.prefill is not None else []
        work = [(part.session, len(part.tokens)) for part in parts]
        starts = [session.starts(session.position, Position(session.position + count)) for session, count in work]
        by_page = [self._by_page(*part) for part in work if part[0].policy is Policy.SCORED]
        tokens = torch.tensor([token for part in parts for token in part.tokens], device=self._device)
        phases = self._phases(work, starts)
        if by_page:
            attend = ScoredAttention(self._pages, by_page, self._decoder.config, self._ropes)
            hidden = self._decoder.forward(tokens, phases, attend)
        else:
            hidden = self._layers(schedule, work, starts, tokens, phases)
        if isinstance(self._pages, PackedPages):
            pack_full(self._pages, schedule.decode)
        wanted: list[int] = []
        ends = [0]
        for part, (_, count) in zip(parts, work, strict=True):
            first = wanted[-1] + 1 if wanted else 0
            wanted += range(first + part.count - 1, first + count)
            ends.append(len(wanted))
        if len(wanted) < len(tokens):
            hidden = hidden[torch.tensor(wanted, device=self._device)]
        rows = self._decoder.logits(hidden)
        logits = [rows[first:end] for first, end in pairwise(ends)]
        for scored in by_page:
            scored.give_heat()
        return [moved_on(*each) for each in zip(parts, logits, starts, strict=True)]

    def _by_page(self, session: Session, count: int) -> ScoredPart:
        return scored_part(session, count, self._decoder.config.windows, self._device)

    def _layers(
        self,
        schedule: Schedule,
        work: list[tuple[Session, int]],
        starts: list[list[Position]],
        tokens: Tensor,
        phases: Phases,
    ) -> Tensor:
        """The hidden states `[tokens, hidden]`."""
        if self._fused is not None and compiled():
            seen = [(s, [Sight(Position(0), t) for t in begin]) for (s, _), begin in zip(work, starts, strict=True)]
            slots = slots_seen(seen)
            if slots is not None:
                return self._fused.forward(tokens, phases, slots)
            if len(work) == 1:
                ((session, sights),) = seen
                return self._fused.forward_chunk(tokens, phases, prefill_chunk(session, sights))
        attentions = {window: self._attention(schedule, starts, window) for window in self._decoder.config.windows}
        return self._decoder.forward(tokens, phases, AttentionByWindow(attentions, self._windows))

    def _attention(self, schedule: Schedule, starts: list[list[Position]], native: int | None) -> Attend:
        """The attention of the layers whose native window is `native`."""

        def seen(session: Session, begin: list[Position]) -> list[Sight]:
            return [sight(session.shape, Position(session.position + i), s, native) for i, s in enumerate(begin)]

        count, scoring, prefill = len(schedule.decode), self._decoder.config.scoring, schedule.prefill
        rows = [seen(session, begin)[0] for session, begin in zip(schedule.decode, starts[:count], strict=True)]
        chunk_seen = seen(prefill.session, starts[-1]) if prefill else []
        return self._plan(schedule, rows, chunk_seen, scoring)

    def _phases(self, work: list[tuple[Session, int]], starts: list[list[Position]]) -> Phases:
        window: list[Position] = []
        sink: list[Position] = []
        for (session, count), begin in zip(work, starts, strict=True):
            for t, start in zip(range(session.position, session.position + count), begin, strict=True):
                window.append(Position(t))
                sink.append(sink_phase(session.shape, Position(t), start))
        if window == sink:
            return Phases(tuple(rope.rotation(window) for rope in self._ropes), None)
        both = [rope.rotation([*window, *sink]) for rope in self._ropes]  # one call of each costs half of two
        first, second = zip(*(rotation.split(len(window)) for rotation in both), strict=True)
        return Phases(first, second)


def _plan_for(pages: Pages) -> PlanAttention:
    if isinstance(pages, PackedPages):
        return partial(packed_attention, pages)
    return partial(by_kernel if pages.k.device.type == "cuda" else in_place, pages)


def moved_on(part: Prefill, logits: Tensor, starts: list[Position]) -> Computed:
    """The session past its own tokens, and what is known about guesses."""
    evicted = part.session.advance(part.count, starts[part.count - 1])
    ahead = Ahead(part.guess, logits[1:], starts[part.count :]) if part.guess else None
    return Computed(part.session, part.count, logits[0], evicted, ahead)
