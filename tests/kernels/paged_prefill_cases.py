"""The prefill kernel against its twin. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.paged_prefill import paged_prefill, paged_prefill_torch
from kernels.runtime import INTERPRETED, KernelUnavailableError
from tests.kernels.conftest import Sizes
from tests.kernels.prefill_world import Chunk, Prompt, make_prompt

DEVICE = "cpu" if INTERPRETED else "cuda"
# Twin and kernel read the same inputs and both add in float32; the kernel rounds the softmax weights to the type of V
# (the interpreter cuts bfloat16 off instead of rounding), and both round the output.
TOLERANCE = {torch.float32: 3e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}


def check(prompt: Prompt, scale: float | None = None, cap: float | None = None) -> None:
    wanted = paged_prefill_torch(*prompt.arguments, sink_start=prompt.sink_start, scale=scale, cap=cap)
    assert wanted.isfinite().all(), "the twin read a slot it must not see"
    here = prompt.to(DEVICE)
    got = paged_prefill(*here.arguments, sink_start=here.sink_start, scale=scale, cap=cap).cpu()
    assert got.dtype == wanted.dtype
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


SMALL = Sizes(16, 2, 1, 16)
EDGES = [
    Chunk(20, 3, 0, 20), Chunk(20, 3, 0, 7), Chunk(20, 3, 7, 13), Chunk(20, 3, 20, 5), Chunk(20, 3, 20, 48),
    Chunk(20, 3, 20, 49), Chunk(20, 3, 67, 2), Chunk(20, 3, 68, 16), Chunk(20, 3, 69, 31), Chunk(20, 3, 200, 40),
    Chunk(20, 2, 20, 90), Chunk(0, 2, 0, 70), Chunk(16, 1, 40, 33), Chunk(20, 3, 68, 1),
]  # fmt: skip


@pytest.mark.parametrize("chunk", EDGES, ids=str)
def test_every_edge_of_the_window(chunk):
    """Sinks whole and in part, an empty ring, the page edge, the window's edge, and a chunk longer than the ring."""
    check(make_prompt(SMALL, chunk))


@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [
        (torch.float32, 80), (torch.float16, 64), (torch.float16, 96), (torch.bfloat16, 128), (torch.bfloat16, 256),
    ],
)  # fmt: skip
def test_types_and_head_sizes(dtype, head_dim):
    check(make_prompt(Sizes(16, 4, 2, head_dim, dtype), Chunk(20, 2, 60, 9)))


@pytest.mark.parametrize("page_size", [32, 64, 128])
def test_page_sizes(page_size):
    check(make_prompt(Sizes(page_size, 1, 1, 16), Chunk(page_size + 5, 1, 2 * page_size + 9, 11)))


@pytest.mark.parametrize(("q_heads", "kv_heads"), [(6, 2), (2, 2), (16, 1)])
def test_grouped_heads(q_heads, kv_heads):
    check(make_prompt(Sizes(16, q_heads, kv_heads, 16), Chunk(4, 2, 50, 9)))


@pytest.mark.parametrize("raised", [1, 7, 16, 21])
def test_start_raised_inside_a_page(raised):
    check(make_prompt(SMALL, Chunk(10, 4, 300, 35, raised)))


@pytest.mark.parametrize(
    ("first", "native", "cap"), [(20, 9, None), (20, 40, 0.7), (70, 60, None), (70, 55, 1e-3), (130, 40, 0.7)]
)
def test_native_windows_and_a_soft_cap(first, native, cap):
    check(make_prompt(SMALL, Chunk(20, 3, first, 30, native=native)), cap=cap)


def test_pages_that_nobody_sees_may_be_left_out():
    prompt = make_prompt(SMALL, Chunk(20, 4, 200, 10, native=12))
    kept = torch.tensor(
        [entry < 2 or int(pos) + 16 > int(prompt.start.min()) for entry, pos in enumerate(prompt.page_pos)]
    )
    assert kept.sum() < len(kept)
    check(replace(prompt, page_table=prompt.page_table[kept], page_pos=prompt.page_pos[kept]))


def test_strides_and_scale():
    """Keys and values are cut out of one stacked projection; the pages of a cache whose heads lie inside pages."""
    prompt = make_prompt(Sizes(16, 4, 2, 64), Chunk(20, 2, 60, 9))
    assert not prompt.k.is_contiguous()
    k, v = (each.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3) for each in (prompt.k_pages, prompt.v_pages))
    check(replace(prompt, k_pages=k, v_pages=v), scale=0.3)


def test_large_scores_do_not_overflow():
    check(make_prompt(SMALL, Chunk(4, 2, 60, 20)), scale=1000.0)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_chunk(data):
    sinks = data.draw(st.integers(0, 40), "sinks")
    in_sinks = sinks > 0 and data.draw(st.booleans(), "in the sinks")
    first = data.draw(st.integers(0, sinks - 1) if in_sinks else st.integers(sinks, sinks + 150), "first")
    chunk = Chunk(
        sinks,
        data.draw(st.integers(1, 4), "ring pages"),
        first,
        data.draw(st.integers(1, min(70, sinks - first) if in_sinks else 70), "tokens"),
        data.draw(st.integers(0, 20), "raised"),
        data.draw(st.sampled_from([5, 33, 1 << 40]), "native window"),
    )
    check(make_prompt(SMALL, chunk, seed=data.draw(st.integers(0, 99), "seed")))


def test_tensors_elsewhere_are_refused():
    with pytest.raises(KernelUnavailableError, match=r"call paged_prefill_torch there"):
        paged_prefill(*make_prompt(SMALL, Chunk(4, 2, 30, 3)).to("meta" if INTERPRETED else "cpu").arguments)


@pytest.mark.slow
@pytest.mark.parametrize("page_size", [16, 32, 128])
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(9, 3), (2, 2), (8, 1)])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_wide_grid(page_size, q_heads, kv_heads, head_dim):
    number = page_size // 16 + q_heads + head_dim // 16
    dtype = list(TOLERANCE)[number % 3]
    chunk = [Chunk(20, 2, 200, 50), Chunk(page_size + 9, 1, 3 * page_size, 60, 5), Chunk(4, 3, 90, 70, native=60)]
    check(make_prompt(Sizes(page_size, q_heads, kv_heads, head_dim, dtype), chunk[number % 3], seed=number))
