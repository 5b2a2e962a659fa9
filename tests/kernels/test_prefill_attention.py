"""Attention of chunks: a softmax over what each token sees, however a prompt is cut, and nothing else is read."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.cpu.page_rows import PAGE_TYPES
from kernels.cpu.prefill_attention import BLOCK, ChunkKeys, PrefillAttention, chunk_keys
from kernels.cpu.team import Team

TEAMS = {1: Team(1), 2: Team(2)}
SCALE = 0.2
CASES = st.tuples(
    st.sampled_from([(1, 1), (2, 3), (3, 1), (1, 7)]),
    st.sampled_from([16, 64, 80]),
    st.integers(0, 2 * BLOCK + 5),
    st.integers(0, 3 * BLOCK),
    st.integers(1, 2 * BLOCK + 9),
    st.sampled_from([1, 2]),
    st.sampled_from(PAGE_TYPES),
)
Case = tuple[tuple[int, int], int, int, int, int, int, torch.dtype]


class World:
    """Sinks at positions [0, sinks), a ring of `earlier` tokens and then those of a chunk, in shuffled slots among
    others that hold NaN."""

    def __init__(
        self, heads: tuple[int, int], dim: int, sinks: int, earlier: int, tokens: int, dtype: torch.dtype
    ) -> None:
        torch.manual_seed(sinks + 7 * earlier + 31 * tokens)
        (kv_heads, group), start = heads, sinks + 37
        self.sinks = sinks
        self.positions = torch.cat((torch.arange(sinks), torch.arange(start, start + earlier + tokens)))
        count = len(self.positions)
        self.slots = torch.randperm(2 * count)[:count]
        self.k, self.v = torch.full((2, kv_heads, 2 * count, dim), float("nan"), dtype=dtype)
        self.rows = torch.randn(2, count, kv_heads, dim).to(dtype).float()
        for pages, rows in zip((self.k, self.v), self.rows, strict=True):
            pages[:, self.slots] = rows.transpose(0, 1).to(dtype)
        self.q, self.q_sink = torch.randn(2, tokens, kv_heads * group, dim) * 3
        ring = torch.randint(0, earlier + 1, (tokens,)).sort().values + sinks
        own = torch.arange(count - tokens, count)
        low = torch.randint(0, sinks + 1, (tokens,))
        self.seen = torch.stack((low, torch.full((tokens,), sinks), torch.minimum(ring, own), own + 1), dim=1)

    def attend(self, first: int, end: int, team: Team) -> Tensor:
        """Tokens [first, end) as one chunk."""
        before = len(self.positions) - len(self.q) + first
        until = before + end - first
        new = self.rows[:, before:until]
        keys = chunk_keys(self.slots[:before], self.positions[:until], self.sinks, self.seen[first:end])
        run = PrefillAttention(new.shape[2], self.q.shape[1] // new.shape[2], new.shape[3], team)
        k, v = self.k.clone(), self.v.clone()
        for pages in (k, v):  # the tokens' own slots are not written yet
            pages[:, self.slots[before:]] = float("nan")
        return run(self.q[first:end], self.q_sink[first:end], (new[0], new[1]), (k, v), keys, SCALE)

    def wanted(self) -> Tensor:
        """By a softmax over all columns, float64."""
        group = self.q.shape[1] // self.rows.shape[2]
        k, v = self.rows.double().repeat_interleave(group, 2).transpose(1, 2)
        columns = torch.arange(len(self.positions))
        by_sink, by_ring = (q.double().transpose(0, 1) @ k.mT for q in (self.q_sink, self.q))
        low, high, start, end = self.seen.T[:, :, None]
        visible = ((columns >= low) & (columns < high)) | ((columns >= start) & (columns < end))
        scores = torch.where(columns < self.sinks, by_sink, by_ring) * SCALE
        return (scores.masked_fill(~visible, float("-inf")).softmax(-1) @ v).transpose(0, 1)


@settings(deadline=None, max_examples=30)
@given(CASES)
def test_it_is_a_softmax_over_what_is_seen(case: Case) -> None:
    *sizes, threads, dtype = case
    world = World(*sizes, dtype)
    got = world.attend(0, len(world.q), TEAMS[threads])
    torch.testing.assert_close(got.double(), world.wanted(), rtol=1e-4, atol=2e-5)


@settings(deadline=None, max_examples=20)
@given(CASES, st.integers(1, BLOCK), st.integers(0, 5))
def test_a_prompt_may_be_cut_anywhere(case: Case, cut: int, more: int) -> None:
    *sizes, threads, dtype = case
    world = World(*sizes, dtype)
    tokens = len(world.q)
    edges = [0, *sorted({min(cut, tokens), min(cut + more, tokens), tokens})]
    parts = [world.attend(a, b, TEAMS[1]) for a, b in pairwise(edges)]
    assert torch.equal(torch.cat(parts), world.attend(0, tokens, TEAMS[threads]))


def test_what_is_no_number_stays_none() -> None:
    world = World((1, 2), 16, 5, 70, 9, torch.float16)
    world.q[4, 1] = float("nan")
    finite = world.attend(0, 9, TEAMS[1]).isfinite().all(-1)
    assert finite.sum() == 17
    assert not finite[4, 1]


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="24"):
        PrefillAttention(1, 1, 24, TEAMS[1])
    run, x = PrefillAttention(1, 2, 16, TEAMS[1]), torch.zeros(3, 1, 16)
    keys: ChunkKeys = chunk_keys(torch.zeros(0, dtype=torch.long), torch.arange(3), 0, torch.zeros(3, 4).long())
    with pytest.raises(ValueError, match="shapes"):
        run(x, x, (x, x), (x, x), keys, 1.0)
    with pytest.raises(ValueError, match="bfloat16"):
        run(*(x.view(3, 1, 16).expand(3, 2, 16),) * 2, (x, x), (x.bfloat16(), x.bfloat16()), keys, 1.0)
