"""The gate's kernel against its twin. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

import pytest
import torch

from kernels.gated import Gate, gated, gated_torch
from kernels.runtime import INTERPRETED, KernelUnavailableError

DEVICE = "cpu" if INTERPRETED else "cuda"
# One step of the type: both compute in float32, and the interpreter cuts bfloat16 off instead of rounding.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def check(gate_up, gate):
    wanted = gated_torch(gate_up, gate)
    got = gated(gate_up.to(DEVICE), gate).cpu()
    assert got.dtype == wanted.dtype
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("gate", list(Gate))
@pytest.mark.parametrize(("tokens", "width"), [(1, 1536), (5, 96), (2, 1), (3, 1025)])
def test_every_size(tokens, width, gate, dtype):
    check((3 * torch.randn(tokens, 2 * width, generator=torch.Generator().manual_seed(width))).to(dtype), gate)


@pytest.mark.parametrize("gate", list(Gate))
def test_gates_far_from_zero(gate):
    """Where exp overflows, and where GELU's cube does."""
    far = torch.tensor([[-1e15, -1e4, -90.0, -20.0, -1e-8, 0.0, 1e-8, 20.0, 90.0, 1e4, 1e15]])
    check(torch.cat((far, torch.ones_like(far)), dim=1), gate)


def test_a_stride_wider_than_the_row():
    """NaN lies between the rows."""
    wide = torch.full((4, 300), float("nan"))
    wide[:, :200] = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
    got = gated(wide.to(DEVICE)[:, :200], Gate.SILU).cpu()
    torch.testing.assert_close(got, gated_torch(wide[:, :200], Gate.SILU), atol=1e-6, rtol=1e-6)


def test_tensors_elsewhere_are_refused():
    with pytest.raises(KernelUnavailableError, match=r"call gated_torch there"):
        gated(torch.zeros(2, 8, device="meta" if INTERPRETED else "cpu"), Gate.SILU)
