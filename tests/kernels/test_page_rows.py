"""Rows of pages: what is kept in float16 is the nearest float16, and nothing that is finite becomes infinite."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.pages import as_held
from kernels.cpu.page_rows import LANES, PAGE_TYPES, read_row, round_row_to_half, units, write_row

EDGES = [0.0, -0.0, 1e-8, 6e-8, 6.1e-5, 1 + 2**-11, 65503.0, 65504.0, 65519.9, 65520.0, -7e4, 3e38]
ODD = [float("inf"), float("-inf"), float("nan")]


@given(st.lists(st.sampled_from(EDGES + ODD) | st.floats(width=32), min_size=LANES, max_size=LANES))
def test_rows_come_back_as_torch_holds_them(values: list[float]) -> None:
    row = torch.tensor(values)
    for dtype in PAGE_TYPES:
        page, back, rounded = torch.zeros(1, LANES, dtype=dtype), torch.zeros(LANES), row.clone()
        write_row(row.numpy(), units(page)[0])
        read_row(units(page)[0], back.numpy())
        want = as_held(row, dtype).float()
        assert_same(page[0].float(), want)
        assert_same(back, want)
        round_row_to_half(rounded.numpy())
        assert_same(rounded, as_held(row, torch.float16).float())
        assert torch.equal(want.isfinite(), row.isfinite())


def assert_same(got: Tensor, want: Tensor) -> None:
    """To the bit, but for which NaN it is."""
    assert torch.equal(got.isnan(), want.isnan())
    assert np.array_equal(*(x.nan_to_num(1.0, float("inf"), float("-inf")).numpy().view(np.int32) for x in (got, want)))


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="bfloat16"):
        units(torch.zeros(1, 8, dtype=torch.bfloat16))
