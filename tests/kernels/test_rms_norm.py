"""The torch twins of the norm kernels against torch's own, and what the launchers refuse."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.rms_norm import add_rms_norm, add_rms_norm_torch, rms_norm, rms_norm_torch


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 200), st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.integers(0, 99), st.sampled_from([1.0, 0.22]),
)  # fmt: skip
def test_twins_equal_torch(tokens, width, dtype, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    hidden, x = (torch.randn(tokens, width, generator=generator).to(dtype) for _ in range(2))
    weight = torch.randn(width, generator=generator)
    wanted = (hidden.float() + scale * x.float()).to(dtype)
    added, normed = add_rms_norm_torch(hidden, x, weight, 1e-5, scale=scale)
    assert torch.equal(added, wanted)
    theirs = F.rms_norm(wanted.float(), (width,), weight, 1e-5).to(dtype)
    torch.testing.assert_close(normed, theirs, atol=1e-6, rtol=2**-7 if dtype == torch.bfloat16 else 1e-3)
    assert torch.equal(rms_norm_torch(added, weight, 1e-5), normed)


@pytest.mark.parametrize("launcher", [rms_norm, rms_norm_torch])
@pytest.mark.parametrize(
    ("x", "weight", "out", "sentence"),
    [
        ((4,), (4,), None, "x has shape (4,): expected [tokens, width] or [tokens, heads, width]"),
        ((2, 20000), (20000,), None, "width 1 to 16384"),
        ((2, 8), (9,), None, "weight has shape (9,): expected (8,)"),
        ((2, 8), (8,), (2, 9), "out has shape (2, 9): expected (2, 8)"),
    ],
)
def test_a_wrong_shape_is_named(launcher, x, weight, out, sentence):
    with pytest.raises(ValueError, match="expected") as raised:
        launcher(torch.zeros(x), torch.zeros(weight), 1e-6, out=None if out is None else torch.zeros(out))
    assert sentence in str(raised.value)


@pytest.mark.parametrize("launcher", [rms_norm, rms_norm_torch])
def test_types_and_layouts_are_checked(launcher):
    x, weight = torch.zeros(2, 8), torch.zeros(8)
    for arguments, sentence in (
        ((x.double(), weight), "x is torch.float64: expected float32, float16 or bfloat16"),
        ((x, weight.half()), "weight is torch.float16: expected torch.float32"),
        ((torch.zeros(8, 2).t(), weight), "x is not contiguous in its last dimension"),
        ((x, weight.to("meta")), "weight is on meta: expected cpu, where x is"),
    ):
        with pytest.raises(ValueError, match=r"expected|contiguous") as raised:
            launcher(*arguments, 1e-6)
        assert sentence in str(raised.value)


@pytest.mark.parametrize("launcher", [add_rms_norm, add_rms_norm_torch])
def test_what_is_added_must_fit(launcher):
    hidden, weight = torch.zeros(2, 8), torch.zeros(8)
    for arguments, sentence in (
        ((hidden[None], hidden, weight), "hidden has shape (1, 2, 8): expected [tokens, width]"),
        ((hidden, hidden[:1], weight), "x has shape (1, 8): expected (2, 8)"),
        ((hidden, hidden.half(), weight), "x is torch.float16: expected torch.float32"),
    ):
        with pytest.raises(ValueError, match="expected") as raised:
            launcher(*arguments, 1e-6)
        assert sentence in str(raised.value)
