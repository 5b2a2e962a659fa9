"""Rotating and storing by the kernel against its twin. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.rope_store import Angles, rope, rope_torch, store, store_torch
from kernels.runtime import INTERPRETED, KernelUnavailableError
from tests.kernels.rope_world import Batch, make_batch

DEVICE = "cpu" if INTERPRETED else "cuda"
# One step of the type: both compute in float32, and the interpreter cuts bfloat16 off instead of rounding.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}
HEADS = [(9, 3), (4, 4), (8, 1), (40, 10)]


def check(batch: Batch) -> None:
    """Both kernels: what `rope` gives, and the pages that `store` wrote."""
    here = batch.to(DEVICE)
    got, wanted = rope(*here.to_rotate), rope_torch(*batch.to_rotate)
    assert (got[1] is got[0]) == (wanted[1] is wanted[0])
    store(*here.to_store)
    store_torch(*batch.to_store)
    tolerance = TOLERANCE[wanted[0].dtype]
    for one, other in zip(got, wanted, strict=True):
        assert one.is_contiguous()
        assert one.dtype == other.dtype
        torch.testing.assert_close(one.cpu(), other, atol=tolerance, rtol=tolerance)
    for one, other in ((here.k_pages, batch.k_pages), (here.v_pages, batch.v_pages)):
        assert torch.equal(one.cpu().nan_to_num(7), other.nan_to_num(7))


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_batch(data):
    check(
        make_batch(
            tokens=data.draw(st.integers(1, 5), "tokens"),
            heads=data.draw(st.tuples(st.integers(1, 6), st.integers(1, 3)), "heads"),
            head_dim=data.draw(st.sampled_from([8, 40, 64]), "head size"),
            rotary=data.draw(st.sampled_from([2, 8]), "rotated dimensions"),
            two_phase=data.draw(st.booleans(), "two phases"),
            dtype=data.draw(st.sampled_from(list(TOLERANCE)), "type"),
            seed=data.draw(st.integers(0, 99), "seed"),
        )
    )


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("head_dim", "rotary"), [(64, 64), (80, 80), (96, 72), (128, 128), (256, 64)])
def test_head_sizes_and_partial_rotation(head_dim, rotary, dtype):
    check(make_batch(tokens=3, heads=(4, 2), head_dim=head_dim, rotary=rotary, two_phase=True, dtype=dtype))


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("two_phase", [True, False])
def test_heads(heads, two_phase):
    check(make_batch(tokens=2, heads=heads, head_dim=64, rotary=64, two_phase=two_phase))


def test_unused_rows_store_nothing():
    batch = make_batch(tokens=4, heads=(4, 2), head_dim=64, rotary=64, two_phase=True)
    batch.slots[1] = batch.slots[3] = -1
    check(batch)
    assert batch.k_pages.isfinite().sum() == 2 * 2 * 64


def test_a_pool_past_two_to_the_31_values():
    """The last page of a pool of 2**31 values and more: the memory is asked for, and touched only where it is used."""
    pages = 2**31 // (16 * 128) + 2
    batch = make_batch(tokens=1, heads=(1, 1), head_dim=128, rotary=128, two_phase=False, dtype=torch.float16)
    k_pages = torch.empty((1, pages, 16, 128), dtype=torch.float16, device=DEVICE)
    v_pages = torch.empty_like(k_pages)
    slots = torch.tensor([pages * 16 - 1], device=DEVICE)
    store(batch.k.to(DEVICE), batch.v.to(DEVICE), slots, k_pages, v_pages)
    assert torch.equal(k_pages[0, -1, -1].cpu(), batch.k[0, 0])
    assert torch.equal(v_pages[0, -1, -1].cpu(), batch.v[0, 0])


def test_tensors_elsewhere_are_refused():
    batch = make_batch(tokens=2, heads=(4, 2), head_dim=64, rotary=64, two_phase=True)
    elsewhere = batch.to("meta" if INTERPRETED else "cpu")
    with pytest.raises(KernelUnavailableError, match=r"call rope_torch there"):
        rope(*elsewhere.to_rotate)
    with pytest.raises(KernelUnavailableError, match=r"call store_torch there"):
        store(*elsewhere.to_store)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("page_size", [16, 128])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_wide_grid(head_dim, page_size, heads, dtype):
    check(make_batch(5, heads, head_dim, head_dim, two_phase=True, dtype=dtype, page_size=page_size))


def test_far_positions_lose_nothing():
    """A key ten million tokens on, rotated by angles that were computed in float64."""
    batch = make_batch(tokens=2, heads=(1, 1), head_dim=64, rotary=64, two_phase=False)
    inverse = 1e4 ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    angles = torch.outer(torch.tensor([10_000_000.0, 10_000_001.0], dtype=torch.float64), inverse)
    cos, sin = angles.cos(), angles.sin()
    window = Angles(torch.cat((cos, cos), -1).float(), torch.cat((-sin, sin), -1).float())
    here = batch.to(DEVICE)
    q_window, _, _ = rope(here.q, here.k, Angles(window.cos.to(DEVICE), window.sin.to(DEVICE)), None)
    low, high = batch.q[:, 0].double().chunk(2, dim=-1)
    wanted = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
    torch.testing.assert_close(q_window[:, 0].cpu().double(), wanted, atol=1e-6, rtol=1e-6)
