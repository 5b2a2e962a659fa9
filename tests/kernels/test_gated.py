"""The torch twin of the gate's kernel against torch's own functions, and what the launcher refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from kernels.gated import Gate, gated, gated_torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_twin_rounds_once(dtype):
    gate_up = torch.randn(7, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    left, right = gate_up.double().chunk(2, dim=-1)
    for gate, activation in ((Gate.SILU, F.silu(left)), (Gate.GELU_TANH, F.gelu(left, approximate="tanh"))):
        got, step = gated_torch(gate_up, gate), torch.finfo(dtype).eps
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), activation * right, atol=step, rtol=step)


@pytest.mark.parametrize("launcher", [gated, gated_torch])
def test_a_wrong_argument_is_named(launcher):
    for wrong, sentence in (
        (torch.zeros(8), "gate_up has shape (8,): expected [tokens, 2 * width]"),
        (torch.zeros(2, 7), "gate_up has shape (2, 7): expected [tokens, 2 * width]"),
        (torch.zeros(2, 8, dtype=torch.float64), "gate_up is torch.float64: expected float32, float16 or bfloat16"),
        (torch.zeros(8, 2).t(), "gate_up is not contiguous in its last dimension"),
    ):
        with pytest.raises(ValueError, match="gate_up") as raised:
            launcher(wrong, Gate.SILU)
        assert sentence in str(raised.value)
