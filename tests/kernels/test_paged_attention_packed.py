"""The torch twin for packed pages against attention without pages, and what the launcher refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.formats.kv_format import KvFormat
from kernels.flash import MAX_SPLITS
from kernels.paged_attention_packed import paged_decode_packed, paged_decode_packed_torch
from tests.kernels.conftest import Chat, Sizes, _build
from tests.kernels.packed_world import PAIRS, pack

FORMATS = list(PAIRS)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_twin_equals_attention_without_pages(build, chat, sizes, dense, data):
    page_size = data.draw(st.sampled_from([1, 3, 4, 16]), "page size")
    one = st.builds(
        chat, st.integers(0, 3 * page_size), st.integers(1, 4), st.integers(-1, 10 * page_size), st.integers(0, 20)
    )
    chats = data.draw(st.lists(one, min_size=1, max_size=3), "sessions")
    kv_heads, group = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 3)), "heads")
    world = build(sizes(page_size, kv_heads * group, kv_heads, data.draw(st.sampled_from([8, 40]))), chats)
    name, kept = data.draw(st.sampled_from(FORMATS), "format"), data.draw(st.integers(0, 4), "kept sink pages")
    packed = pack(world, chats, name, kept)
    got = paged_decode_packed_torch(*packed.arguments, magnitudes=packed.magnitudes, scale=0.4)
    torch.testing.assert_close(got, dense(packed.world, 0.4), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cap", [None, 0.7])
@pytest.mark.parametrize("name", FORMATS)
def test_twin_with_sinks_behind_a_native_window_and_a_soft_cap(build, chat, sizes, dense, hide_sinks, name, cap):
    chats = [chat(20, 2, 100), chat(20, 2, 100), chat(20, 2, 100), chat(20, 2, 19)]
    world = build(sizes(16, 4, 2, 8), chats)
    first = hide_sinks(world, [0, 17, 20, 5])
    packed = pack(world, chats, name, sink_start=first)
    got = paged_decode_packed_torch(*packed.arguments, magnitudes=packed.magnitudes, scale=0.9, cap=cap)
    torch.testing.assert_close(got, dense(packed.world, 0.9, first, cap), atol=1e-5, rtol=1e-5)


CHATS = [Chat(4, 2, 30)]
GOOD = pack(_build(Sizes(), CHATS), CHATS, KvFormat.INT8)
TQ3 = pack(_build(Sizes(), CHATS), CHATS, KvFormat.TQ3)
WRONG = [
    ({"k_frames": GOOD.k_frames[0]}, "expected [kv_heads, frames, page_size, head_dim]"),
    ({"v_frames": GOOD.v_frames.half()}, "v_frames is torch.float16: expected torch.float32"),
    ({"keys": replace(GOOD.keys, codes=GOOD.keys.codes[..., :32])}, "keys.codes has shape"),
    ({"values": replace(GOOD.values, scales=GOOD.values.scales.float())}, "values.scales is torch.float32"),
    ({"keys": replace(GOOD.keys, scales=GOOD.keys.scales[:, :-1])}, "expected whole pages of 16"),
    ({"values": TQ3.values}, "keys are INT8 and values TQ3: expected one of INT8 with INT8"),
    ({"keys": TQ3.keys, "values": TQ3.values}, "magnitudes belong to TQ3 and to it alone; the packing is TQ3"),
    ({"magnitudes": torch.ones(4)}, "magnitudes belong to TQ3 and to it alone; the packing is INT8"),
    ({"tables": replace(GOOD.tables, frame_table=GOOD.tables.frame_table.long())}, "frame_table is torch.int64"),
    ({"tables": replace(GOOD.tables, kept=GOOD.tables.kept[:0])}, "kept has shape (0,): expected (1,)"),
    ({"tables": replace(GOOD.tables, page_pos=GOOD.tables.page_pos.to("meta"))}, "page_pos is on meta: expected cpu"),
]


@pytest.mark.parametrize("launcher", [paged_decode_packed, paged_decode_packed_torch])
@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_a_wrong_argument_is_named(launcher, changes, sentence):
    world = replace(GOOD, **changes)
    with pytest.raises(ValueError, match=r"expected|belong") as raised:
        launcher(*world.arguments, magnitudes=world.magnitudes)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "splits", "sentence"),
    [
        ({"page_size": 24}, 3, "page_size is 24: the kernel needs a power of two, at least 16"),
        ({"head_dim": 320}, 3, "head_dim is 320"),
        ({"q_heads": 34}, 3, "17 query heads share a KV head"),
        ({}, 2, "splits is 2: expected 3 to 128"),
        ({}, MAX_SPLITS + 1, "splits is 129"),
    ],
)
def test_what_the_kernel_does_not_serve(build, sizes, changes, splits, sentence):
    world = pack(build(sizes(**changes), CHATS), CHATS, KvFormat.INT8)
    with pytest.raises(ValueError, match=r"splits|kernel") as raised:
        paged_decode_packed(*world.arguments, splits=splits)
    assert sentence in str(raised.value)


def test_both_queries_matter(build, chat, sizes):
    chats = [chat(40, 2, 100)]
    world = pack(build(sizes(), chats), chats, KvFormat.INT4)
    swapped = replace(world, world=replace(world.world, q_window=world.world.q_sink, q_sink=world.world.q_window))
    assert not torch.allclose(
        paged_decode_packed_torch(*world.arguments), paged_decode_packed_torch(*swapped.arguments), atol=1e-2
    )
