"""The CPU's kernel for a chunk sees what the torch way sees: sinks, native windows, recycled pages and all."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from engine.attention import PrefillInPlace, prefill_chunk
from engine.attention_cpu import PrefillByKernel
from engine.cache.pages import Pages
from engine.model.config import Scoring
from engine.scheduler import chunk_length
from engine.types import Position
from engine.window import Sight, WindowShape, sight
from tests.engine.helpers import make_session, poison, split_messages
from tests.engine.tiny import CPU

KV_HEADS, GROUP, DIM, PAGE, RING = 2, 3, 16, 8, 4


def make(shape: WindowShape) -> Pages:
    pages = Pages(
        layers=1,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        pages=shape.quota_pages,
        page_size=PAGE,
        dtype=torch.float32,
        device=CPU,
    )
    for memory in (pages.k, pages.v):
        memory.fill_(float("nan"))
    return pages


def rows(count: int, heads: int) -> Tensor:
    return torch.randn(count, heads, DIM)


@pytest.mark.parametrize("native", [None, 1, 5, 20, 40])
@pytest.mark.parametrize("sinks", [0, 3, 11])
@pytest.mark.parametrize("chunk", [7, 32, 90])
def test_as_in_torch(sinks: int, native: int | None, chunk: int) -> None:
    torch.manual_seed(sinks + chunk)
    shape, tokens, scoring = WindowShape(PAGE, sinks, RING), list(range(150)), Scoring(scale=0.3)
    _, messages = split_messages(tokens, sinks, seed=chunk)
    pages = make(shape)
    session = make_session(pages, shape, tokens, messages)
    while session.pending:
        count = chunk_length(session, chunk)
        end = Position(session.position + count)
        starts = session.starts(session.position, end)
        seen: list[Sight] = [sight(shape, Position(session.position + i), s, native) for i, s in enumerate(starts)]
        plan, other = prefill_chunk(session, seen), copy.deepcopy(pages)
        q_window, q_sink = rows(count, KV_HEADS * GROUP), rows(count, KV_HEADS * GROUP)
        q_sink = q_sink if end > sinks else q_window
        given = 0, q_window, q_sink, rows(count, KV_HEADS), rows(count, KV_HEADS)
        want, got = PrefillInPlace(pages, plan, scoring)(*given), PrefillByKernel(other, plan, scoring)(*given)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        for ours, theirs in zip((other.k, other.v), (pages.k, pages.v), strict=True):
            assert torch.equal(ours.nan_to_num(7e9), theirs.nan_to_num(7e9))
        session.advance(count, starts[-1])
        poison(pages, [session])
