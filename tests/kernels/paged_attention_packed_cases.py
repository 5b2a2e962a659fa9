"""The kernel for packed pages against its twin. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.formats.kv_format import KvFormat
from kernels.flash import MAX_SPLITS
from kernels.paged_attention import MAX_GROUP
from kernels.paged_attention_packed import FRAME_SPLITS, paged_decode_packed, paged_decode_packed_torch
from kernels.runtime import INTERPRETED, KernelUnavailableError
from tests.kernels.packed_world import PAIRS, pack

DEVICE = "cpu" if INTERPRETED else "cuda"
# Both read the same codes and add in float32. The kernel rounds levels and weights to the type of the query, weights
# to bfloat16 where that is float16, and the interpreter cuts bfloat16 off instead of rounding.
TOLERANCE = {torch.float32: 3e-6, torch.float16: 1e-2, torch.bfloat16: 3e-2}
FORMATS = list(PAIRS)


def check(world, chats, name, kept_pages=1, splits=FRAME_SPLITS + 1, sink_start=None, **options) -> None:
    packed = pack(world, chats, name, kept_pages, sink_start)
    wanted = paged_decode_packed_torch(*packed.arguments, magnitudes=packed.magnitudes, **options)
    assert wanted.isfinite().all(), "the twin read a slot it must not see"
    here = packed.to(DEVICE)
    got = paged_decode_packed(*here.arguments, magnitudes=here.magnitudes, splits=splits, **options).cpu()
    assert got.dtype == wanted.dtype
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("name", "page_size"),
    [
        (KvFormat.TQ3, 16),
        (KvFormat.K8V4, 32),
        pytest.param(KvFormat.INT4, 64, marks=pytest.mark.slow),
        pytest.param(KvFormat.INT8, 128, marks=pytest.mark.slow),
    ],
)
def test_every_edge_of_the_window(build, chat, sizes, positions_at_edges, name, page_size):
    sinks = page_size + 5
    chats = [chat(sinks, 2, t) for t in positions_at_edges(sinks, 2, page_size)]
    chats += [chat(page_size, 1, t) for t in (page_size - 1, page_size, 2 * page_size)]  # full sink pages
    check(build(sizes(page_size, 2, 1, 64), chats), chats, name)


@pytest.mark.parametrize(
    ("name", "dtype", "head_dim"),
    [
        (KvFormat.INT8, torch.bfloat16, 80), (KvFormat.K8V4, torch.float16, 96), (KvFormat.INT4, torch.bfloat16, 128),
        (KvFormat.TQ3, torch.bfloat16, 80), (KvFormat.TQ3, torch.float16, 128), (KvFormat.INT4, torch.float32, 80),
    ],
)  # fmt: skip
def test_types_and_head_sizes(build, chat, sizes, name, dtype, head_dim):
    chats = [chat(20, 2, 70)]
    check(build(sizes(16, 3, 1, head_dim, dtype), chats), chats, name, splits=4)


@pytest.mark.parametrize("kept_pages", [0, 2, 5])
def test_any_number_of_kept_sinks(build, chat, sizes, kept_pages):
    chats = [chat(42, 3, t) for t in (3, 17, 35, 41, 42, 90, 300)]
    check(build(sizes(16, 1, 1, 16), chats), chats, FORMATS[kept_pages % 4], kept_pages)


@pytest.mark.parametrize("splits", [4, 9])
def test_any_number_of_splits_gives_the_same_answer(build, chat, sizes, splits):
    chats = [chat(33, 4, 300), chat(16, 1, 3)]
    check(build(sizes(16, 2, 1), chats), chats, FORMATS[splits % 4], splits=splits)


@pytest.mark.parametrize("raised", [1, 21])
def test_start_raised_inside_a_page(build, chat, sizes, raised):
    chats = [chat(10, 3, 200, raised), chat(16, 4, 64, raised)]
    check(build(sizes(16, 2, 1), chats), chats, FORMATS[raised % 4])


def test_unused_rows_give_zeros(build, chat, sizes):
    chats = [chat(4, 2, 30), chat(4, 2, -1)]
    world = pack(build(sizes(16), chats), chats, KvFormat.INT8).to(DEVICE)
    out = paged_decode_packed(*world.arguments).cpu()
    assert out[1].count_nonzero() == 0
    assert out[0].count_nonzero() > 0


@pytest.mark.parametrize("name", FORMATS)
def test_sinks_behind_a_native_window_and_a_soft_cap(build, chat, sizes, hide_sinks, name):
    chats = [chat(20, 2, 100), chat(20, 2, 100), chat(36, 2, 100), chat(20, 2, 19)]
    world = build(sizes(16, 2, 1), chats)
    check(world, chats, name, sink_start=hide_sinks(world, [0, 17, 36, 5]), cap=0.7, scale=0.3)


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_any_session(build, chat, sizes, data):
    page_size = data.draw(st.sampled_from([16, 32]), "page size")
    one = st.builds(
        chat, st.integers(0, 3 * page_size), st.integers(1, 4), st.integers(-1, 12 * page_size), st.integers(0, 40)
    )
    chats = data.draw(st.lists(one, min_size=1, max_size=2), "sessions")
    kv_heads, group = data.draw(st.tuples(st.integers(1, 2), st.integers(1, MAX_GROUP)), "heads")
    head_dim = data.draw(st.sampled_from([8, 40, 64]), "head size")
    world = build(sizes(page_size, kv_heads * group, kv_heads, head_dim), chats)
    name, kept = data.draw(st.sampled_from(FORMATS), "format"), data.draw(st.integers(0, 3), "kept sink pages")
    check(world, chats, name, kept, data.draw(st.integers(FRAME_SPLITS + 1, 8), "splits"))


def test_tensors_elsewhere_are_refused(build, chat, sizes):
    chats = [chat(4, 2, 30)]
    world = pack(build(sizes(), chats), chats, KvFormat.INT8).to("meta" if INTERPRETED else "cpu")
    with pytest.raises(KernelUnavailableError, match=r"runs on .*call paged_decode_packed_torch there"):
        paged_decode_packed(*world.arguments, splits=MAX_SPLITS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_wide_grid(build, chat, sizes, positions_at_edges, name, head_dim):
    """Every format at every head size; page sizes, heads, types and windows take turns: each with each takes hours."""
    combination = head_dim // 16 + FORMATS.index(name)
    page_size = [16, 32, 64, 128][combination % 4]
    q_heads, kv_heads = [(9, 3), (8, 8), (8, 2), (16, 1)][combination // 2 % 4]
    dtype = list(TOLERANCE)[combination % 3]
    sinks, ring_pages = [(4, 3), (page_size + 9, 1), (4, 1), (page_size + 9, 3)][combination % 4]
    times = positions_at_edges(sinks, ring_pages, page_size)[combination // 2 % 2 :: 2]
    chats = [chat(sinks, ring_pages, t, raised=n % 3 * 5) for n, t in enumerate(times)]
    world = build(sizes(page_size, q_heads, kv_heads, head_dim, dtype), chats, seed=combination)
    check(world, chats, name, combination % 3, FRAME_SPLITS + 1 + combination % 3)
