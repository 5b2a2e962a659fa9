"""The kernel against its twin. Run by test_under_triton.py in a process of its own: TRITON_INTERPRET is read once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.paged_attention import MAX_GROUP, paged_decode, paged_decode_torch
from kernels.runtime import INTERPRETED, KernelUnavailableError

DEVICE = "cpu" if INTERPRETED else "cuda"
# Twin and kernel read the same inputs and both add in float32; the kernel rounds the softmax weights to the type of V
# (the interpreter cuts bfloat16 off instead of rounding), and both round the output.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
HEADS = [(9, 3), (8, 8), (8, 2), (16, 1)]


def check(world, splits: int, scale: float | None = None, sink_start=None, cap: float | None = None) -> None:
    wanted = paged_decode_torch(*world.arguments, sink_start=sink_start, scale=scale, cap=cap)
    assert wanted.isfinite().all(), "the twin read a slot it must not see"
    first = None if sink_start is None else sink_start.to(DEVICE)
    got = paged_decode(*world.to(DEVICE).arguments, sink_start=first, scale=scale, cap=cap, splits=splits).cpu()
    assert got.dtype == wanted.dtype
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
def test_every_edge_of_the_window(build, chat, sizes, positions_at_edges, page_size):
    sinks = page_size + 5
    chats = [chat(sinks, 2, t) for t in positions_at_edges(sinks, 2, page_size)]
    chats += [chat(page_size, 1, t) for t in (page_size - 1, page_size, 2 * page_size)]  # full sink pages
    check(build(sizes(page_size, 2, 1, 64), chats), splits=1)


@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [
        (torch.float32, 80), (torch.float16, 64), (torch.float16, 96), (torch.bfloat16, 80), (torch.bfloat16, 128),
    ],
)  # fmt: skip
def test_types_and_head_sizes(build, chat, sizes, dtype, head_dim):
    check(build(sizes(16, 9, 3, head_dim, dtype), [chat(20, 2, 70)]), splits=2)


@pytest.mark.parametrize(("q_heads", "kv_heads"), HEADS)
def test_grouped_heads(build, chat, sizes, q_heads, kv_heads):
    check(build(sizes(16, q_heads, kv_heads), [chat(4, 2, 60)]), splits=1)


@pytest.mark.parametrize("splits", [1, 2, 3, 7, 20])
def test_any_number_of_splits_gives_the_same_answer(build, chat, sizes, splits):
    check(build(sizes(16, 2, 1), [chat(33, 8, 500), chat(16, 1, 3)]), splits)


@pytest.mark.parametrize("raised", [1, 7, 16, 21, 10_000])
def test_start_raised_inside_a_page(build, chat, sizes, raised):
    check(build(sizes(16), [chat(10, 4, 300, raised), chat(16, 4, 64, raised)]), splits=2)


def test_no_sinks(build, chat, sizes):
    check(build(sizes(16), [chat(0, 3, t) for t in (0, 15, 16, 47, 48, 200)]), splits=1)


def test_unused_rows_give_zeros(build, chat, sizes):
    world = build(sizes(16), [chat(4, 2, 30), chat(4, 2, -1)])
    for splits in (1, 3):
        out = paged_decode(*world.to(DEVICE).arguments, splits=splits).cpu()
        assert out[1].count_nonzero() == 0
        assert out[0].count_nonzero() > 0
    check(world, splits=3)


def test_an_empty_page_is_not_read(build, chat, sizes):
    """page_pos -1 hides a page, also where position -1 + slot would be visible, and its entry may hold any page id."""
    world = build(sizes(16), [chat(0, 3, 40)])
    world.k_pages[:, world.page_table[0, 0]] = float("nan")
    world.page_pos[0, 0] = world.page_table[0, 0] = -1
    check(world, splits=2)


def test_scale_and_strides(build, chat, sizes):
    """A layer of a larger cache, cut out of a tensor whose heads lie inside pages."""
    world = build(sizes(32, 4, 2, 80), [chat(40, 2, 150)])
    k, v = (pages.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3) for pages in (world.k_pages, world.v_pages))
    assert not k.is_contiguous()
    arguments = (*world.arguments[:2], k, v, *world.arguments[4:])
    wanted = paged_decode_torch(*world.arguments, scale=0.3)
    got = paged_decode(*(a.to(DEVICE) for a in arguments), scale=0.3, splits=2).cpu()
    torch.testing.assert_close(got, wanted, atol=2e-6, rtol=2e-6)
    assert not torch.allclose(wanted, paged_decode_torch(*world.arguments), atol=1e-3)


def test_large_scores_do_not_overflow(build, chat, sizes):
    check(build(sizes(16), [chat(4, 2, 60)]), splits=3, scale=1000.0)


@pytest.mark.parametrize(("splits", "cap"), [(3, None), (1, 0.7), (2, 1e-3)])
def test_sinks_behind_a_native_window_and_a_soft_cap(build, chat, sizes, hide_sinks, splits, cap):
    world = build(sizes(16, 4, 2), [chat(20, 2, 100), chat(20, 2, 100), chat(36, 2, 100), chat(20, 2, 19)])
    check(world, splits, sink_start=hide_sinks(world, [0, 17, 36, 5]), cap=cap)


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_any_session(build, chat, sizes, data):
    page_size = data.draw(st.sampled_from([16, 32]), "page size")
    one = st.builds(
        chat, st.integers(0, 3 * page_size), st.integers(1, 4), st.integers(-1, 12 * page_size), st.integers(0, 40)
    )
    chats = data.draw(st.lists(one, min_size=1, max_size=2), "sessions")
    kv_heads, group = data.draw(st.tuples(st.integers(1, 2), st.integers(1, MAX_GROUP)), "heads")
    head_dim = data.draw(st.sampled_from([8, 40, 64]), "head size")
    splits = data.draw(st.integers(1, 6), "splits")
    check(build(sizes(page_size, kv_heads * group, kv_heads, head_dim), chats), splits)


def test_tensors_elsewhere_are_refused(build, chat, sizes):
    elsewhere = "meta" if INTERPRETED else "cpu"
    with pytest.raises(KernelUnavailableError, match=r"paged_decode runs on .*call paged_decode_torch there"):
        paged_decode(*build(sizes(), [chat(4, 2, 30)]).to(elsewhere).arguments)


@pytest.mark.slow
@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
@pytest.mark.parametrize(("q_heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_wide_grid(build, chat, sizes, positions_at_edges, page_size, q_heads, kv_heads, head_dim):
    combination = [16, 32, 64, 128].index(page_size) + HEADS.index((q_heads, kv_heads)) + head_dim // 16
    dtype = list(TOLERANCE)[combination % 3]
    sinks, ring_pages = [(4, 3), (page_size + 9, 1), (4, 1), (page_size + 9, 3)][combination % 4]
    times = positions_at_edges(sinks, ring_pages, page_size)[combination // 2 % 2 :: 2]
    chats = [chat(sinks, ring_pages, t, raised=n % 3 * 5) for n, t in enumerate(times)]
    check(build(sizes(page_size, q_heads, kv_heads, head_dim, dtype), chats, seed=combination), 1 + combination % 3)
