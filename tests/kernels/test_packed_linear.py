"""Weights in 4 and 8 bits: packing loses nothing, and the product is its torch twin's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.cpu.packed_linear import packed_linear, packed_linear_torch, packed_rows, packed_rows_torch, round_row
from kernels.cpu.packed_weights import GROUP, TILE, PackedWeight, empty, pack, unpack
from kernels.cpu.team import Team
from kernels.cpu.unpacked_tile import GROUPS_AT_ONCE

ONE, TWO = Team(1), Team(2)
quick = settings(deadline=None, max_examples=40)
GROUPS = st.integers(1, 6) | st.sampled_from([GROUPS_AT_ONCE, GROUPS_AT_ONCE + 1, 2 * GROUPS_AT_ONCE + 3])
SIZES = st.tuples(st.integers(1, 9), GROUPS, st.sampled_from([4, 8]), st.integers(0, 999))


def weight_of(tiles: int, groups: int, bits: int, seed: int) -> tuple[PackedWeight, Tensor]:
    """A random weight, packed in two lots, and its values."""
    torch.manual_seed(seed)
    rows, columns = tiles * TILE, groups * GROUP
    low, high, kind = (0, 16, torch.uint8) if bits == 4 else (-127, 128, torch.int8)
    numbers = torch.randint(low, high, (rows, columns), dtype=kind)
    scale = (torch.rand(rows, groups) * 0.1).half()
    minimum = (-torch.rand(rows, groups)).half() if bits == 4 else None
    weight = empty(rows, columns, bits)
    cut = tiles // 2 * TILE
    for first, end in ((0, cut), (cut, rows)):
        lot = None if minimum is None else minimum[first:end]
        if first < end:
            pack(weight, first, numbers[first:end], scale[first:end], lot)
    values = numbers.float() * scale.float().repeat_interleave(GROUP, 1)
    return weight, values if minimum is None else values + minimum.float().repeat_interleave(GROUP, 1)


@quick
@given(SIZES)
def test_what_is_packed_can_be_read_back(size: tuple[int, int, int, int]) -> None:
    weight, values = weight_of(*size)
    assert torch.equal(unpack(weight), values)
    assert torch.equal(unpack(weight, TILE), values[TILE:])
    tokens = torch.randint(0, weight.rows, (5,))
    torch.testing.assert_close(packed_rows(weight, tokens), values[tokens])
    assert torch.equal(packed_rows_torch(weight, tokens), values[tokens])


def rounded(x: Tensor) -> Tensor:
    """What goes into the product, float64."""
    acts, scales = torch.zeros(x.shape, dtype=torch.int16), torch.zeros(len(x), x.shape[1] // GROUP)
    for row, act, scale in zip(x, acts, scales, strict=True):
        round_row(row.numpy(), act.numpy(), scale.numpy(), torch.zeros_like(scale).numpy())
    return acts.double() * scales.double().repeat_interleave(GROUP, 1)


@quick
@given(SIZES, st.integers(1, 11), st.sampled_from([1e-6, 1.0, 1e4]), st.sampled_from([ONE, TWO]))
def test_the_product_is_the_twins(size: tuple[int, int, int, int], tokens: int, spread: float, team: Team) -> None:
    weight, values = weight_of(*size)
    x = torch.randn(tokens, weight.columns) * spread
    x[:, 0] *= 100  # a group with an outlier rounds the rest of itself by more, and no other group
    got = packed_linear(x, weight, team)
    scale = (x.norm(dim=1, keepdim=True) * values.norm(dim=1)).clamp(min=1e-30)
    # Of what the kernel rounded to, the product is exact but for its float32 sums.
    assert float(((got - rounded(x) @ values.double().T) / scale).abs().max()) < 2e-6
    # The twin may round a number that lies between two to the other side: one in each group.
    step, widest = (t.view(len(t), -1, GROUP).abs().amax(-1) for t in (x / 32767, values))
    assert bool(((got - packed_linear_torch(x, weight)).abs() <= 2e-6 * scale + step @ widest.T).all())
    # Half a step of each of a group's 32 numbers, all of them in the worst direction.
    assert float(((got - x.double() @ values.double().T) / scale).abs().max()) < GROUP**0.5 * 0.51 / 32767


@quick
@given(SIZES, st.integers(2, 11))
def test_a_token_does_not_depend_on_the_others(size: tuple[int, int, int, int], tokens: int) -> None:
    weight, _ = weight_of(*size)
    x = torch.randn(tokens, weight.columns)
    alone = torch.cat([packed_linear(row[None], weight, ONE) for row in x])
    assert torch.equal(packed_linear(x, weight, TWO), alone)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(bits: int, broken: float) -> None:
    weight, _ = weight_of(3, 2, bits, 0)
    for tokens in (2, 9):
        x = torch.randn(tokens, weight.columns)
        x[1::3, 40] = broken
        finite = packed_linear(x, weight, ONE).isfinite()
        assert not bool(finite[1::3].any())
        assert bool(finite[0::3].all() and finite[2::3].all())


def test_zeros_give_zeros() -> None:
    weight, _ = weight_of(2, 3, 8, 0)
    assert not packed_linear(torch.zeros(3, weight.columns), weight, ONE).any()


def test_wrong_shapes_are_refused() -> None:
    weight, _ = weight_of(2, 3, 4, 0)
    for x in (torch.zeros(1, 64), torch.zeros(96), torch.zeros(1, 96, dtype=torch.float64)):
        with pytest.raises(ValueError, match="96"):
            packed_linear(x, weight, ONE)
    with pytest.raises(ValueError, match="17"):
        empty(17, 32, 4)
    with pytest.raises(ValueError, match="32"):
        packed_rows(weight, torch.tensor([32]))


@pytest.mark.slow
def test_a_processor_without_the_instruction_computes_the_same() -> None:
    code = (
        "import torch; from kernels.cpu import packed_linear as p; from tests.kernels import test_packed_linear as t;"
        " weight, _ = t.weight_of(3, 5, {bits}, 1); torch.manual_seed(2);"
        " print(p.packed_linear(torch.randn(13, weight.columns), weight, t.ONE).view(torch.int32).tolist())"
    )
    for bits in (4, 8):
        weight, _ = weight_of(3, 5, bits, 1)
        torch.manual_seed(2)
        here = packed_linear(torch.randn(13, weight.columns), weight, ONE).view(torch.int32).tolist()
        old = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c"}
        command = [sys.executable, "-c", code.format(bits=bits)]
        done = subprocess.run(command, env=old, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(here)
