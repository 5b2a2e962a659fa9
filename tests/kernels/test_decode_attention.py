"""Attention over runs of slots, in pieces: equal to a softmax over all of them, and nothing else is read."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.cpu.decode_attention import PIECE, attend_piece, exponential, join_pieces
from kernels.cpu.page_rows import PAGE_TYPES, units


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, PIECE), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([32, 64, 96, 128]),
    st.sampled_from([0.1, 1.0, 30.0]),
    st.sampled_from(PAGE_TYPES),
)
def test_pieces_make_the_whole_softmax(
    lengths: list[int], group: int, dim: int, spread: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(len(lengths))
    slots = sum(lengths) + 3 * len(lengths)
    k, v = torch.full((2, slots, dim), float("nan"), dtype=dtype)
    q = torch.randn(group, dim) * spread
    parts, scores = torch.zeros(len(lengths), group, dim + 2), torch.zeros(group, PIECE)
    at, seen = 0, []
    for index, length in enumerate(lengths):
        at += 3  # slots that must not be read
        k[at : at + length], v[at : at + length] = torch.randn(2, length, dim).to(dtype)
        seen += range(at, at + length)
        arrays = q.numpy(), units(k), units(v)
        attend_piece(*arrays, at, at + length, np.float32(0.2), scores.numpy(), parts[index].numpy())
        at += length
    weights = torch.softmax(q.double() @ k[seen].double().T * 0.2, dim=-1)
    want = weights @ v[seen].double()
    for head in range(group):
        got = torch.zeros(dim)
        join_pieces(parts.numpy(), 0, len(lengths), head, got.numpy())
        torch.testing.assert_close(got.double(), want[head], rtol=1e-4, atol=2e-5)


def test_the_exponential_is_exact_to_a_few_units() -> None:
    for x in np.linspace(-87, 88, 2000, dtype=np.float32):
        want = np.exp(np.float64(x))
        assert abs(exponential(x) - want) < 4e-7 * want
    assert exponential(np.float32(-1e30)) < 2e-38
