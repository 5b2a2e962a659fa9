"""Packed pages inside the engine's loop: against the dense reference that packs the same pages, and against itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat, page_format
from engine.cache.formats.rows import Rows, dequantise
from engine.cache.kv_cache import KvCache, full_pages, kept_pages, page_bounds, table_entry
from engine.cache.packed import SINK_TOKENS, PackedPages, pages_for
from engine.runner import EagerRunner
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, PageId, Position, SessionId
from engine.window import WindowShape
from tests.engine.helpers import poison, split_messages
from tests.engine.reference import Packing, reference_logits
from tests.engine.tiny import CPU, Tiny

PACKED = [KvFormat.INT8, KvFormat.K8V4, KvFormat.INT4, KvFormat.TQ3]
SHAPES = [(4, 3, 6), (8, 8, 4), (16, 11, 2), (5, 0, 7), (1, 2, 24)]


class World:
    """A cache, a runner and sessions whose steps are the engine's own, everything unseen poisoned after each."""

    def __init__(self, tiny: Tiny, name: KvFormat, page: int, quota_pages: int, sessions: int = 1) -> None:
        config = tiny.ours.config
        pages = pages_for(
            name,
            sessions=sessions,
            layers=config.layers,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            pages=sessions * quota_pages,
            page_size=page,
            dtype=torch.float32,
            device=CPU,
        )
        assert isinstance(pages, PackedPages)
        self.pages = pages
        self.cache = KvCache(f"tiny|{name}", self.pages, sessions=sessions, quota_pages=quota_pages, host_images=0)
        self.runner = EagerRunner(tiny.ours.decoder, self.pages, CPU)
        self.sessions: list[Session] = []
        self.held: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def add(self, shape: WindowShape, tokens: list[int], messages: list[tuple[str, list[int]]]) -> Session:
        session = Session(SessionId(len(self.sessions) + 1), shape)
        session.append(None, tokens[: shape.sinks])
        for key, ids in messages:
            session.append(MessageKey(key), ids)
        self.cache.admit(session)
        self.sessions.append(session)
        self.held[session.id] = []
        return session

    def step(self, chunk: int) -> dict[int, tuple[Position, Tensor]]:
        """One step; session -> its last computed position and the logits there."""
        planned = schedule(self.sessions, chunk)
        for session in planned.decode:
            self.cache.claim(session, 1)
        if planned.prefill is not None:
            self.cache.claim(planned.prefill.session, planned.prefill.count)
        out = {}
        for computed in self.runner.run(planned):
            known = len(self.held[computed.session.id])
            self.cache.settle(computed.session)
            self.read_full_pages(computed.session, known)
            out[computed.session.id] = (Position(computed.session.position - 1), computed.logits)
        poison(self.pages, self.sessions, self.cache.prefix.resident)
        self.cache.check(self.sessions)
        return out

    def read_full_pages(self, session: Session, known: int) -> None:
        """Keep what the pages that became full hold, `[layers, kv_heads, tokens, head_dim]`."""
        for number in range(known, full_pages(session.shape, session.position)):
            first, end = page_bounds(session.shape, number)
            low = session.slot(first)
            parts = []
            for rows in (self.pages.keys, self.pages.values):
                codes, scales = (m[:, :, low : low + end - first] for m in (rows.codes, rows.scales))
                out = torch.empty(*scales.shape, self.pages.k.shape[-1])
                dequantise(rows.quantiser, Rows(codes, scales), out)
                parts.append(out if number >= kept_pages(self.pages, session.shape) else out.fill_(float("nan")))
            self.held[session.id].append((parts[0], parts[1]))

    def held_rows(self, session: Session, count: int) -> tuple[Tensor, Tensor]:
        """What packed pages held of the first `count` tokens, `[layers, tokens, kv_heads, head_dim]`, NaN elsewhere."""
        keys, values = (torch.cat(parts, dim=2).transpose(1, 2) for parts in zip(*self.held[session.id], strict=True))
        missing = keys.new_full((keys.shape[0], count - keys.shape[1], *keys.shape[2:]), float("nan"))
        return torch.cat((keys, missing), dim=1), torch.cat((values, missing), dim=1)

    def run(self, chunk: int) -> dict[int, dict[int, Tensor]]:
        """Everything pending; session -> position -> logits."""
        logits: dict[int, dict[int, Tensor]] = {s.id: {} for s in self.sessions}
        while any(s.pending for s in self.sessions):
            for session, (t, some) in self.step(chunk).items():
                logits[session][t] = some
        return logits


def history(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(length)]


@pytest.fixture
def few_kept_sinks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a system prompt, only the first 8 tokens are kept as computed."""
    monkeypatch.setattr("engine.cache.packed.SINK_TOKENS", 8)
    return 8


@pytest.mark.parametrize("chunk", [1, 3, 16, 500])
@pytest.mark.parametrize(("page", "sinks", "ring"), [*SHAPES, (4, 21, 5)])
@pytest.mark.parametrize("name", PACKED)
def test_logits_at_every_position(
    tiny: Tiny, name: KvFormat, page: int, sinks: int, ring: int, chunk: int, few_kept_sinks: int
) -> None:
    shape = WindowShape(page, sinks, ring)
    tokens = history(sinks + 3 * ring * page + 3, seed=page)
    starts, messages = split_messages(tokens, sinks, seed=ring)
    world = World(tiny, name, page, shape.quota_pages + 1)
    session = world.add(shape, tokens, messages)
    got = world.run(chunk)[session.id]
    chosen = page_format(name, tiny.ours.config.head_dim)
    assert chosen is not None
    packing = Packing(chosen, -(-few_kept_sinks // page), world.held_rows(session, len(tokens)))
    want = reference_logits(
        tiny.theirs, tokens, sinks=sinks, page=page, ring=ring, message_starts=starts, packing=packing
    )
    assert len(tokens) - 1 in got
    for t, logits in got.items():
        torch.testing.assert_close(logits, want[t], atol=2e-4, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")
