"""The kernels of weights in 8 and 4 bits against their twins. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels.low_bit_linear import MAX_SPLITS, MAX_TOKENS, low_bit_linear, low_bit_linear_torch
from kernels.low_bit_rows import low_bit_rows, low_bit_rows_torch
from kernels.low_bit_weights import unpack_low_bit
from kernels.runtime import INTERPRETED, KernelUnavailableError
from tests.kernels.low_bit_world import on, weight_of

DEVICE = "cpu" if INTERPRETED else "cuda"
# One step of the type: both sum in float32, and the interpreter cuts bfloat16 off instead of rounding.
STEP = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
TYPES = list(STEP)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(rows, columns, bits, tokens, dtype, *, splits=1, biased=False, seed=0):
    weight, values = weight_of(rows, columns, bits, seed)
    # A minimum and what is added to it are summed apart, so each of them is rounded at its own size.
    minima = unpack_low_bit(replace(weight, scale=torch.zeros_like(weight.scale)), torch.arange(rows))
    size = values.norm(dim=1) + 2 * minima.norm(dim=1)
    x, bias = random(tokens, columns, dtype=dtype, seed=seed), random(rows, dtype=dtype, seed=seed + 1)
    bias = bias if biased else None
    wanted = low_bit_linear_torch(x, weight, bias)
    here = None if bias is None else bias.to(DEVICE)
    got = low_bit_linear(x.to(DEVICE), on(weight, DEVICE), here, splits=splits).cpu()
    assert (got.dtype, got.shape) == (dtype, (tokens, rows))
    size = x.float().norm(dim=1, keepdim=True) * size + (0 if bias is None else bias.float().abs())
    # A row of zeros has no size, and gives exactly zero.
    assert float(((got.float() - wanted.float()).abs() / size.clamp(min=1e-30)).max()) < STEP[dtype]


@settings(max_examples=15, deadline=None)
@example(rows=27, columns=1, bits=8, tokens=1, dtype=torch.float32, splits=1, biased=False, seed=0)  # a row of zeros
@given(
    rows=st.integers(1, 140), columns=st.integers(1, 200), bits=st.sampled_from([4, 8]),
    tokens=st.integers(1, MAX_TOKENS), dtype=st.sampled_from(TYPES), splits=st.integers(1, 5), biased=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape(rows, columns, bits, tokens, dtype, splits, biased, seed):
    check(rows, columns, bits, tokens, dtype, splits=splits, biased=biased, seed=seed)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_shape_of_the_starter(bits):
    check(576, 576, bits, 3, torch.bfloat16, splits=4)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("rows", "columns", "splits", "tokens"), [(960, 576, 1, 7), (192, 4096, MAX_SPLITS, 1), (1040, 330, 3, MAX_TOKENS)]
)
def test_wide_grid(rows, columns, splits, bits, dtype, tokens):
    check(rows, columns, bits, tokens, dtype, splits=splits, biased=True)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_is_the_same_whatever_stands_beside_it(dtype, bits):
    weight = on(weight_of(70, 160, bits, 1)[0], DEVICE)
    x = random(MAX_TOKENS, 160, dtype=dtype).to(DEVICE)
    together = low_bit_linear(x, weight, splits=3)
    beside = random(MAX_TOKENS, 160, dtype=dtype).to(DEVICE)
    beside[3:8] = x[3:8]
    assert torch.equal(low_bit_linear(beside, weight, splits=3)[3:8], together[3:8])
    for count in (1, 5):
        alone = low_bit_linear(x[3 : 3 + count], weight, splits=3)
        if INTERPRETED:
            # Its products are numpy's, which sums a row otherwise at another place of the tile on some processors.
            torch.testing.assert_close(alone, together[3 : 3 + count], rtol=STEP[dtype], atol=20 * STEP[dtype])
        else:
            assert torch.equal(alone, together[3 : 3 + count])


@pytest.mark.parametrize("bits", [4, 8])
def test_nothing_beyond_the_weight_or_the_rows_of_x_is_read(bits):
    """NaN fills the tile up, and lies between the rows of x."""
    weight, values = weight_of(37, 70, bits, 2)
    weight.scale[2, :, 5:] = float("nan")
    wide = torch.full((4, 100), float("nan"))
    wide[:, :70] = random(4, 70)
    got = low_bit_linear(wide.to(DEVICE)[:, :70], on(weight, DEVICE)).cpu()
    torch.testing.assert_close(got, wide[:, :70] @ values.T, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(bits, broken):
    weight = on(weight_of(40, 96, bits, 0)[0], DEVICE)
    x = random(2, 96)
    x[1, 40] = broken
    got = low_bit_linear(x.to(DEVICE), weight, splits=2)
    assert bool(got[0].isfinite().all())
    assert not bool(got[1].isfinite().any())


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 70), columns=st.integers(1, 300), bits=st.sampled_from([4, 8]), dtype=st.sampled_from(TYPES),
    data=st.data(),
)  # fmt: skip
def test_rows_are_the_twins(rows, columns, bits, dtype, data):
    weight, values = weight_of(rows, columns, bits, rows)
    wanted = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=40)))
    got = low_bit_rows(on(weight, DEVICE), wanted.to(DEVICE), dtype).cpu()
    torch.testing.assert_close(got, low_bit_rows_torch(weight, wanted, dtype), atol=1e-6, rtol=STEP[dtype])
    torch.testing.assert_close(got.float(), values[wanted], atol=1e-6, rtol=STEP[dtype])


@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_that_is_not_there_is_no_number(bits):
    weight = on(weight_of(37, 64, bits, 0)[0], DEVICE)
    got = low_bit_rows(weight, torch.tensor([36, 37, -1, 10**12], device=DEVICE), torch.float32)
    assert bool(got[0].isfinite().all())
    assert bool(got[1:].isnan().all())


def test_tensors_elsewhere_are_refused():
    elsewhere = "meta" if INTERPRETED else "cpu"
    weight = on(weight_of(16, 32, 8, 0)[0], elsewhere)
    with pytest.raises(KernelUnavailableError, match=r"call low_bit_linear_torch there"):
        low_bit_linear(torch.zeros(1, 32, device=elsewhere), weight)
    with pytest.raises(KernelUnavailableError, match=r"call low_bit_rows_torch there"):
        low_bit_rows(weight, torch.zeros(1, dtype=torch.int64, device=elsewhere), torch.float32)
