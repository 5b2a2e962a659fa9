"""Weights in 8 and 4 bits as a GPU holds them: packing loses nothing; what launchers and twins refuse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.low_bit_linear import MAX_SPLITS, MAX_TOKENS, low_bit_linear, low_bit_linear_torch, low_bit_splits
from kernels.low_bit_rows import low_bit_rows, low_bit_rows_torch
from kernels.low_bit_weights import empty_low_bit, low_bit_bytes, unpack_low_bit
from tests.kernels.low_bit_world import weight_of

BITS = st.sampled_from([4, 8])


@given(st.integers(1, 80), st.integers(1, 200), BITS, st.integers(0, 99))
def test_what_is_packed_can_be_read_back(rows: int, columns: int, bits: int, seed: int) -> None:
    weight, values = weight_of(rows, columns, bits, seed)
    assert weight.bits == bits
    assert torch.equal(unpack_low_bit(weight, torch.arange(rows)), values)
    some = torch.randint(0, rows, (5,))
    assert torch.equal(low_bit_rows_torch(weight, some, torch.float32), values[some])


@given(st.integers(1, 80), st.integers(1, 200), BITS)
def test_the_bytes_that_are_counted_are_held(rows: int, columns: int, bits: int) -> None:
    weight = empty_low_bit(rows, columns, bits, torch.device("cpu"))
    held = (weight.numbers, weight.scale, *(() if weight.minimum is None else (weight.minimum,)))
    assert weight.bytes == low_bit_bytes(rows, columns, bits) == sum(t.untyped_storage().nbytes() for t in held)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_twin_is_the_product_of_the_values(bits: int) -> None:
    weight, values = weight_of(70, 100, bits, 0)
    x, bias = torch.randn(20, 100), torch.randn(70)
    torch.testing.assert_close(low_bit_linear_torch(x, weight, bias), x @ values.T + bias)


def test_splits_follow_the_sizes_and_the_gpu() -> None:
    assert low_bit_splits(128256, 4096, 132) == 1  # rows enough for all processors
    assert low_bit_splits(4096, 4096, 132) == 9
    assert low_bit_splits(576, 576, 132) == 4  # at least four groups each
    assert low_bit_splits(64, 10**6, 132) == MAX_SPLITS
    assert low_bit_splits(16, 8, 132) == 1


@pytest.mark.parametrize("launcher", [low_bit_linear, low_bit_linear_torch])
def test_a_wrong_argument_of_a_product_is_named(launcher) -> None:
    weight, _ = weight_of(20, 64, 4, 0)
    x = torch.zeros(2, 64)
    for arguments, sentence in (
        ((torch.zeros(64), weight), "x has shape (64,): expected [tokens, columns]"),
        ((torch.zeros(2, 63), weight), "x has shape (2, 63): expected (2, 64)"),
        ((x.double(), weight), "x is torch.float64: expected float32, float16 or bfloat16"),
        ((torch.zeros(64, 2).t(), weight), "x is not contiguous in its last dimension"),
        ((x, weight, torch.zeros(21)), "bias has shape (21,): expected (20,)"),
        ((x, weight, torch.zeros(20).half()), "bias is torch.float16: expected torch.float32"),
        ((x.to("meta"), weight), "x is on meta: expected cpu, where the weight is"),
    ):
        with pytest.raises(ValueError, match=r"expected|contiguous") as raised:
            launcher(*arguments)
        assert sentence in str(raised.value)


def test_more_than_the_kernel_takes_is_refused() -> None:
    weight, _ = weight_of(20, 64, 8, 0)
    for tokens, splits in ((MAX_TOKENS + 1, 1), (1, 0), (1, MAX_SPLITS + 1)):
        with pytest.raises(ValueError, match=f"x holds {tokens} tokens and splits is {splits}: the kernel takes"):
            low_bit_linear(torch.zeros(tokens, 64), weight, splits=splits)


@pytest.mark.parametrize("launcher", [low_bit_rows, low_bit_rows_torch])
def test_wrong_arguments_for_rows_are_named(launcher) -> None:
    weight, _ = weight_of(20, 64, 8, 0)
    for wanted, dtype, sentence in (
        (torch.zeros(2, 2, dtype=torch.int64), torch.float32, "wanted has shape (2, 2): expected [n]"),
        (torch.zeros(2, dtype=torch.int32), torch.float32, "wanted is torch.int32: expected torch.int64"),
        (torch.zeros(2, dtype=torch.int64), torch.float64, "dtype is torch.float64: expected float32"),
    ):
        with pytest.raises(ValueError, match="expected") as raised:
            launcher(weight, wanted, dtype)
        assert sentence in str(raised.value)


@pytest.mark.parametrize(("rows", "columns", "bits"), [(0, 32, 8), (16, 0, 4), (16, 32, 5)])
def test_a_weight_that_cannot_be_held_is_refused(rows: int, columns: int, bits: int) -> None:
    with pytest.raises(ValueError, match=f"cannot hold {rows} x {columns} in {bits} bits"):
        empty_low_bit(rows, columns, bits, torch.device("cpu"))
