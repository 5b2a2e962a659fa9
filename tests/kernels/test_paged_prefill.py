"""The torch twin of the prefill kernel against attention without pages, and what the launcher refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.paged_prefill import paged_prefill, paged_prefill_torch
from tests.kernels.conftest import Sizes
from tests.kernels.prefill_world import Chunk, dense_prompt, make_prompt


def check(chunk: Chunk, sizes: Sizes, scale: float = 0.4, cap: float | None = None, seed: int = 0) -> None:
    prompt = make_prompt(sizes, chunk, seed)
    got = paged_prefill_torch(*prompt.arguments, sink_start=prompt.sink_start, scale=scale, cap=cap)
    torch.testing.assert_close(got, dense_prompt(prompt, scale, cap), atol=1e-5, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_twin_equals_attention_without_pages(data):
    page_size = data.draw(st.sampled_from([1, 3, 4, 16]), "page size")
    sinks = data.draw(st.integers(0, 2 * page_size), "sinks")
    in_sinks = sinks > 0 and data.draw(st.booleans(), "in the sinks")
    first = data.draw(st.integers(0, sinks - 1) if in_sinks else st.integers(sinks, sinks + 60), "first")
    chunk = Chunk(
        sinks,
        data.draw(st.integers(1, 4), "ring pages"),
        first,
        data.draw(st.integers(1, min(20, sinks - first) if in_sinks else 20), "tokens"),
        data.draw(st.integers(0, 20), "raised"),
        data.draw(st.sampled_from([1, 5, 1 << 40]), "native window"),
    )
    check(chunk, Sizes(page_size, 4, 2, 8), seed=data.draw(st.integers(0, 99), "seed"))


@pytest.mark.parametrize("cap", [None, 0.7])
def test_twin_with_a_soft_cap(cap):
    check(Chunk(10, 2, 70, 20, native=30), Sizes(8, 4, 2, 8), cap=cap)


PROMPT = make_prompt(Sizes(16, 4, 2, 64), Chunk(4, 2, 30, 3))
WRONG = [
    ({"q_window": PROMPT.q_window[0]}, "expected [tokens, q_heads, head_dim]"),
    ({"q_window": PROMPT.q_window[:, :3].contiguous()}, "q_window has 3 heads: expected a multiple of the 2 heads"),
    ({"q_sink": PROMPT.q_sink.half()}, "q_sink is torch.float16: expected torch.float32"),
    ({"k": PROMPT.k[:2]}, "k has shape (2, 2, 64): expected (3, 2, 64)"),
    ({"v": PROMPT.v.half()}, "v is torch.float16: expected torch.float32"),
    ({"v_pages": PROMPT.v_pages[:, :2]}, "v_pages has shape (2, 2, 16, 64): expected (2, 5, 16, 64)"),
    ({"page_table": PROMPT.page_table[None]}, "page_table has shape (1, 3): expected [table_len]"),
    ({"page_pos": PROMPT.page_pos.int()}, "page_pos is torch.int32: expected torch.int64"),
    ({"start": PROMPT.start[:1]}, "start has shape (1,): expected (3,)"),
    ({"position": PROMPT.position[0]}, "position has shape (): expected (1,)"),
]


@pytest.mark.parametrize("launcher", [paged_prefill, paged_prefill_torch])
@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_a_wrong_argument_is_named(launcher, changes, sentence):
    with pytest.raises(ValueError, match="expected") as raised:
        launcher(*replace(PROMPT, **changes).arguments)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(("page_size", "head_dim"), [(8, 64), (48, 64), (16, 272)])
def test_sizes_that_the_kernel_does_not_serve(page_size, head_dim):
    prompt = make_prompt(Sizes(page_size, 2, 1, head_dim), Chunk(4, 2, 30, 3))
    with pytest.raises(ValueError, match=f"page_size is {page_size} and head_dim {head_dim}: the kernel needs"):
        paged_prefill(*prompt.arguments)
