"""The torch twin against attention without pages, what launchers refuse, and life without Triton."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.flash import MAX_SPLITS, decode_splits
from kernels.paged_attention import paged_decode, paged_decode_torch


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_twin_equals_attention_without_pages(build, chat, sizes, dense, data):
    page_size = data.draw(st.sampled_from([1, 3, 4, 16]), "page size")
    one = st.builds(
        chat, st.integers(0, 3 * page_size), st.integers(1, 4), st.integers(-1, 10 * page_size), st.integers(0, 20)
    )
    chats = data.draw(st.lists(one, min_size=1, max_size=3), "sessions")
    kv_heads, group = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 3)), "heads")
    world = build(sizes(page_size, kv_heads * group, kv_heads, 8), chats)
    torch.testing.assert_close(paged_decode_torch(*world.arguments), dense(world, 8**-0.5), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("page_size", [16, 64])
def test_twin_at_every_edge_of_the_window(build, chat, sizes, dense, positions_at_edges, page_size):
    sinks = page_size + 5
    chats = [chat(sinks, 2, t) for t in positions_at_edges(sinks, 2, page_size)]
    world = build(sizes(page_size, 4, 2, 16), chats)
    wanted = dense(world, 0.4)
    torch.testing.assert_close(paged_decode_torch(*world.arguments, scale=0.4), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cap", [None, 0.7])
def test_twin_with_sinks_behind_a_native_window_and_a_soft_cap(build, chat, sizes, dense, hide_sinks, cap):
    world = build(sizes(16, 4, 2, 8), [chat(20, 2, 100), chat(20, 2, 100), chat(20, 2, 100), chat(20, 2, 19)])
    first = hide_sinks(world, [0, 17, 20, 5])
    got = paged_decode_torch(*world.arguments, sink_start=first, scale=0.9, cap=cap)
    torch.testing.assert_close(got, dense(world, 0.9, first, cap), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_twin_adds_in_float32(build, chat, sizes, dense, dtype):
    world = build(sizes(16, 4, 2, 64, dtype), [chat(4, 4, 500)])
    got = paged_decode_torch(*world.arguments)
    assert got.dtype == dtype
    torch.testing.assert_close(got, dense(world, 64**-0.5).to(dtype), atol=1e-3, rtol=2**-7)


def test_both_queries_matter(build, chat, sizes):
    world = build(sizes(), [chat(20, 2, 100)])
    swapped = replace(world, q_window=world.q_sink, q_sink=world.q_window)
    assert not torch.allclose(paged_decode_torch(*world.arguments), paged_decode_torch(*swapped.arguments), atol=1e-2)


WRONG = {
    "q_window": (lambda q: q[0], "expected [sessions, q_heads, head_dim]"),
    "q_sink": (lambda q: q[..., :32], "q_sink has shape (1, 4, 32): expected (1, 4, 64)"),
    "k_pages": (lambda k: k[0], "expected [kv_heads, pages, page_size, head_dim]"),
    "v_pages": (lambda v: v.to(torch.float16), "v_pages is torch.float16: expected torch.float32"),
    "page_table": (lambda table: table.long(), "page_table is torch.int64: expected torch.int32"),
    "page_pos": (lambda pos: pos[:, :1], "page_pos has shape (1, 1): expected (1, 4)"),
    "sink_tokens": (lambda sinks: sinks.int(), "sink_tokens is torch.int32: expected torch.int64"),
    "start": (lambda start: start.to("meta"), "start is on meta: expected cpu, where q_window is"),
    "position": (lambda t: t[0], "position has shape (): expected (1,)"),
}


@pytest.mark.parametrize("launcher", [paged_decode, paged_decode_torch])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(build, chat, sizes, launcher, name):
    world = build(sizes(), [chat(4, 2, 30)])
    spoil, sentence = WRONG[name]
    with pytest.raises(ValueError, match=name) as raised:
        launcher(*replace(world, **{name: spoil(getattr(world, name))}).arguments)
    assert sentence in str(raised.value)


def test_strides_heads_and_types_are_checked(build, chat, sizes):
    world = build(sizes(), [chat(4, 2, 30)])
    crooked = world.k_pages.transpose(2, 3).contiguous().transpose(2, 3)
    double = torch.zeros_like(world.q_sink, dtype=torch.float64)
    for spoilt, sentence in (
        (replace(world, k_pages=crooked), "k_pages is not contiguous in its last dimension"),
        (replace(world, q_sink=torch.cat([world.q_sink] * 2, 2)[..., :64]), "q_sink is not contiguous"),
        (replace(world, q_window=world.q_window[:, :3]), "q_window has 3 heads: expected a multiple of the 2 heads"),
        (replace(world, q_window=double), "q_window is torch.float64: expected float32, float16 or bfloat16"),
        (replace(world, page_table=world.page_table[:, :0]), "page_table has shape (1, 0)"),
    ):
        with pytest.raises(ValueError, match=r"not contiguous|expected") as raised:
            paged_decode_torch(*spoilt.arguments)
        assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "splits", "sentence"),
    [
        ({"page_size": 24}, 1, "page_size is 24: the kernel needs a power of two, at least 16"),
        ({"page_size": 8}, 1, "page_size is 8"),
        ({"head_dim": 320}, 1, "head_dim is 320"),
        ({"q_heads": 34}, 1, "17 query heads share a KV head"),
        ({}, 0, "splits is 0: expected 1 to 128"),
        ({}, MAX_SPLITS + 1, "splits is 129"),
    ],
)
def test_what_the_kernel_does_not_serve(build, chat, sizes, changes, splits, sentence):
    world = build(sizes(**changes), [chat(4, 2, 30)])
    with pytest.raises(ValueError, match=r"splits|kernel") as raised:
        paged_decode(*world.arguments, splits=splits)
    assert sentence in str(raised.value)


@given(
    st.integers(1, 64), st.integers(1, 64), st.integers(1, 4096), st.sampled_from([16, 64, 128]), st.integers(1, 200)
)
def test_splits_are_always_allowed(sessions, kv_heads, table_len, page_size, processors):
    splits = decode_splits(sessions, kv_heads, table_len, page_size, processors)
    assert 1 <= splits <= MAX_SPLITS
    assert splits == 1 or (splits - 1) * 128 < table_len * page_size
    assert splits == 1 or (splits - 1) * sessions * kv_heads < 2 * processors


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch
from kernels.paged_attention import paged_decode, paged_decode_torch
one, pages = torch.ones(1, 2, 16), torch.ones(1, 1, 16, 16)
zero = torch.zeros(1, dtype=torch.int64)
arguments = (one, one, pages, pages, torch.zeros(1, 1, dtype=torch.int32), zero[None], zero, zero, zero)
assert paged_decode_torch(*arguments).equal(one)
try:
    paged_decode(*arguments)
except RuntimeError as error:
    print(error)
"""


def test_without_triton_the_twin_works_and_the_kernel_says_why_not():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRITON],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("paged_decode needs Triton, which cannot be imported")
    assert done.stdout.strip().endswith("call paged_decode_torch there")
