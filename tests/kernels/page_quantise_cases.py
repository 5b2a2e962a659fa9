"""The quantise kernel against its twin. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

import pytest
import torch

from kernels.page_quantise import Packing, quantise_rows, quantise_rows_torch
from kernels.runtime import INTERPRETED, KernelUnavailableError

DEVICE = "cpu" if INTERPRETED else "cuda"
MAGNITUDES = torch.tensor([0.03, 0.095, 0.17, 0.27])


def quantised(by, rows, packing, slots=None, device="cpu"):
    """Codes and scales of pages of 48 slots; what was not written holds 99."""
    slots = torch.arange(rows.shape[1]) if slots is None else slots
    codes = torch.full((rows.shape[0], 48, packing.row_bytes(rows.shape[2])), 99, dtype=torch.uint8, device=device)
    scales = torch.full((rows.shape[0], 48), 99, dtype=torch.bfloat16, device=device)
    magnitudes = MAGNITUDES.to(device) if packing is Packing.TQ3 else None
    by(rows.to(device), slots.to(device), codes, scales, packing, magnitudes=magnitudes)
    return codes.cpu(), scales.cpu()


def check(rows, packing, **options):
    """The same bytes, but for a row in a hundred in which the order of a sum chose between two codes."""
    wanted = quantised(quantise_rows_torch, rows, packing, **options)
    got = quantised(quantise_rows, rows, packing, **options, device=DEVICE)
    differs = (got[0] != wanted[0]).any(-1) | (got[1] != wanted[1])
    assert differs.float().mean() <= 0.01, f"{int(differs.sum())} of {differs.numel()} rows differ"


def random(heads, tokens, head_dim, dtype=torch.float32, seed=0):
    return torch.randn(heads, tokens, head_dim, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("packing", list(Packing))
@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [(torch.float32, 64), (torch.bfloat16, 80), (torch.float16, 96), (torch.bfloat16, 128), (torch.float32, 256)],
)
def test_packings_types_and_head_sizes(packing, dtype, head_dim):
    check(random(2, 20, head_dim, dtype), packing)


@pytest.mark.parametrize("packing", list(Packing))
def test_slots_and_strides(packing):
    """Rows of a stacked projection into scattered slots; the others keep what they held."""
    rows = random(20, 3, 64).transpose(0, 1)[:, 3:]
    assert not rows.is_contiguous()
    check(rows, packing, slots=torch.randperm(48, generator=torch.Generator().manual_seed(1))[:17])


@pytest.mark.parametrize("packing", list(Packing))
def test_zeros_outliers_and_sizes(packing):
    rows = random(1, 12, 64)
    rows[0, 0] = 0
    rows[0, 1, 5] = 1e4
    rows[0, 2] *= 1e30
    rows[0, 3] *= 1e-30
    rows[0, 4] = 1.0
    rows[0, 5] = -rows[0, 6]
    check(rows, packing)


def test_tensors_elsewhere_are_refused():
    elsewhere = "meta" if INTERPRETED else "cpu"
    codes, scales = torch.empty(1, 4, 64, dtype=torch.uint8), torch.empty(1, 4, dtype=torch.bfloat16)
    arguments = [each.to(elsewhere) for each in (random(1, 4, 64), torch.arange(4), codes, scales)]
    with pytest.raises(KernelUnavailableError, match=r"call quantise_rows_torch there"):
        quantise_rows(*arguments, Packing.INT8)
