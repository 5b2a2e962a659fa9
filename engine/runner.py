"""Runs a schedule through the decoder, eagerly: plan the attention, one forward pass, move the sessions on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention import DecodeInPlace, PagedAttention, decode_row, prefill_chunk
from engine.attention_gpu import DecodeByKernel
from engine.cache.pages import Pages
from engine.model.decoder import Attend, Decoder, Phases
from engine.model.rope import Rope
from engine.scheduler import Schedule
from engine.session import EvictedSpan, Session
from engine.types import Position
from engine.window import sink_phase


@dataclass(frozen=True, slots=True)
class Computed:
    """What one session got from a step: logits after its last computed token `[vocab]`, and what left its window."""

    session: Session
    logits: Tensor
    evicted: EvictedSpan | None


PlanDecode = Callable[[Pages, list[Session], list[Position], float], Attend]
"""plan(pages, sessions, start of each one's window, scale): the attention of their next tokens."""


def in_place(pages: Pages, sessions: list[Session], starts: list[Position], scale: float) -> Attend:
    """Plain torch, where the pages lie: the CPU's way."""
    return DecodeInPlace(pages, [decode_row(s, start) for s, start in zip(sessions, starts, strict=True)], scale)


def by_kernel(pages: Pages, sessions: list[Session], starts: list[Position], scale: float) -> Attend:
    """The Triton kernel: the GPU's way."""
    return DecodeByKernel(pages, sessions, starts, scale) if sessions else in_place(pages, sessions, starts, scale)


class EagerRunner:
    """One decoder, one set of pages. `plan_decode` says how the decode rows of a step are attended."""

    def __init__(
        self, decoder: Decoder, pages: Pages, device: torch.device, plan_decode: PlanDecode | None = None
    ) -> None:
        self._decoder, self._pages, self._device = decoder, pages, device
        self._plan_decode = plan_decode or (by_kernel if device.type == "cuda" else in_place)
        self._rope = Rope(decoder.config.rope, decoder.config.head_dim, device)

    @torch.inference_mode()
    def run(self, schedule: Schedule) -> list[Computed]:
        """Compute the scheduled tokens. Sessions move on only when the pass has succeeded."""
        work = [(session, 1) for session in schedule.decode]
        if schedule.prefill is not None:
            work.append((schedule.prefill.session, schedule.prefill.count))
        starts = [session.starts(session.position, Position(session.position + count)) for session, count in work]
        prefill, count, scale = schedule.prefill, len(schedule.decode), self._decoder.config.head_dim**-0.5
        chunk = prefill_chunk(prefill.session, starts[-1], self._device) if prefill else None
        decode = self._plan_decode(self._pages, schedule.decode, [begin[0] for begin in starts[:count]], scale)
        attention = PagedAttention(self._pages, decode, count, chunk, scale)
        ids = [token for session, count in work for token in session.pending[:count]]
        tokens = torch.tensor(ids, device=self._device)
        hidden = self._decoder.forward(tokens, self._phases(work, starts), attention)
        ends = torch.tensor([count for _, count in work]).cumsum(0) - 1
        logits = self._decoder.logits(hidden[ends.to(self._device)])
        return [
            Computed(session, logits[i], session.advance(count, starts[i][-1]))
            for i, (session, count) in enumerate(work)
        ]

    def _phases(self, work: list[tuple[Session, int]], starts: list[list[Position]]) -> Phases:
        window: list[Position] = []
        sink: list[Position] = []
        for (session, count), begin in zip(work, starts, strict=True):
            for t, start in zip(range(session.position, session.position + count), begin, strict=True):
                window.append(Position(t))
                sink.append(sink_phase(session.shape, Position(t), start))
        same = window == sink
        return Phases(self._rope.rotation(window), None if same else self._rope.rotation(sink))
