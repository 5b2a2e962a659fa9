"""The norm kernels against their twins. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.rms_norm import MAX_WIDTH, add_rms_norm, add_rms_norm_torch, rms_norm, rms_norm_torch
from kernels.runtime import INTERPRETED, KernelUnavailableError

DEVICE = "cpu" if INTERPRETED else "cuda"
# One step of the type: both compute in float32, and the interpreter cuts bfloat16 off instead of rounding.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
TYPES = list(TOLERANCE)


def close(got, wanted):
    tolerance = TOLERANCE[wanted.dtype]
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got.cpu(), wanted, atol=tolerance, rtol=tolerance)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check_norm(x, width, dtype):
    weight = random(width, seed=1)
    close(rms_norm(x.to(DEVICE), weight.to(DEVICE), 1e-5), rms_norm_torch(x, weight, 1e-5))


@settings(max_examples=12, deadline=None)
@given(
    tokens=st.integers(1, 12), heads=st.integers(1, 5), width=st.integers(1, 300), dtype=st.sampled_from(TYPES),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(tokens, heads, width, dtype, seed):
    check_norm(random(tokens, heads, width, dtype=dtype, seed=seed), width, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [576, 2048, 5120])
def test_hidden_sizes(width, dtype):
    check_norm(3 * random(5, width, dtype=dtype), width, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [960, 4096, 8192, 14336, MAX_WIDTH])
def test_wide_hidden_sizes(width, dtype):
    check_norm(random(9, width, dtype=dtype), width, dtype)


@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_the_heads_of_a_stacked_projection_in_place(head_dim):
    """Queries are normed where they lie, beside keys and values that stay as they are."""
    stacked = random(7, 6, head_dim, dtype=torch.bfloat16)
    weight = random(head_dim, seed=1)
    wanted = rms_norm_torch(stacked[:, :4], weight, 1e-6)
    here = stacked.to(DEVICE)
    out = rms_norm(here[:, :4], weight.to(DEVICE), 1e-6, out=here[:, :4])
    assert out.data_ptr() == here.data_ptr()
    close(here[:, :4].contiguous(), wanted)
    assert torch.equal(here[:, 4:].cpu(), stacked[:, 4:])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("tokens", "width", "scale"), [(3, 576, 1.0), (33, 64, 0.22), (1, 3000, 1.0)])
def test_the_residual_is_added_first(tokens, width, scale, dtype):
    hidden, x = random(tokens, width, dtype=dtype), random(tokens, width, dtype=dtype, seed=1)
    weight = random(width, seed=2)
    wanted = add_rms_norm_torch(hidden, x, weight, 1e-5, scale=scale)
    before = hidden.clone()
    got = add_rms_norm(*(each.to(DEVICE) for each in (hidden, x, weight)), 1e-5, scale=scale)
    for one, other in zip(got, wanted, strict=True):
        close(one, other)
    assert torch.equal(hidden, before)


def test_nothing_beyond_a_row_is_read():
    """NaN lies between the rows."""
    wide = torch.full((6, 100), float("nan"))
    wide[:, :70] = random(6, 70)
    weight = random(70, seed=1)
    got = rms_norm(wide.to(DEVICE)[:, :70], weight.to(DEVICE), 1e-5)
    close(got, rms_norm_torch(wide[:, :70].contiguous(), weight, 1e-5))


@pytest.mark.parametrize("size", [1e-30, 1e15])
def test_tiny_and_huge_rows(size):
    x, weight = random(2, 64) * size, random(64, seed=1)
    close(rms_norm(x.to(DEVICE), weight.to(DEVICE), 1e-6), rms_norm_torch(x, weight, 1e-6))


def test_no_tokens():
    assert rms_norm(torch.empty(0, 64, device=DEVICE), torch.ones(64, device=DEVICE), 1e-6).shape == (0, 64)
    empty = torch.empty(0, 64, device=DEVICE)
    assert [each.shape for each in add_rms_norm(empty, empty, torch.ones(64, device=DEVICE), 1e-6)] == [(0, 64)] * 2


def test_tensors_elsewhere_are_refused():
    elsewhere = "meta" if INTERPRETED else "cpu"
    x = torch.empty(2, 64, device=elsewhere)
    with pytest.raises(KernelUnavailableError, match=r"call rms_norm_torch there"):
        rms_norm(x, torch.ones(64, device=elsewhere), 1e-6)
    with pytest.raises(KernelUnavailableError, match=r"call add_rms_norm_torch there"):
        add_rms_norm(x, x, torch.ones(64, device=elsewhere), 1e-6)
