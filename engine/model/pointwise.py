"""What stands between the matrix products of a layer: one kernel each on a GPU, plain torch elsewhere."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from engine.model.config import Activation
from engine.model.rope import Rotation, rotate
from kernels.gated import Gate
from kernels.gated import gated as gated_by_kernel
from kernels.rms_norm import add_rms_norm, rms_norm
from kernels.rope_store import Angles, rope
from kernels.runtime import serves

_GATES = {Activation.SILU: Gate.SILU, Activation.GELU_TANH: Gate.GELU_TANH}


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of rows `[..., width]`, weight float32 `[width]`, computed in float32; in the type of x."""
    if serves(x.device):
        return rms_norm(x, weight, eps)
    return F.rms_norm(x.float(), (x.shape[-1],), weight, eps).to(x.dtype)


def add_norm(hidden: Tensor, x: Tensor, scale: float, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`hidden + x * scale` `[tokens, width]`, and the norm of that."""
    if serves(x.device):
        return add_rms_norm(hidden, x, weight, eps, scale=scale)
    added = hidden + (x if scale == 1 else x * scale)
    return added, norm(added, weight, eps)


def gated(gate_up: Tensor, activation: Activation) -> Tensor:
    """`activation(left half) * right half` of rows `[tokens, 2 * width]`."""
    if serves(gate_up.device):
        return gated_by_kernel(gate_up, _GATES[activation])
    gate, up = gate_up.chunk(2, dim=-1)
    match activation:
        case Activation.SILU:
            return F.silu(gate).mul_(up)
        case Activation.GELU_TANH:
            return F.gelu(gate, approximate="tanh").mul_(up)


def rotated(qk: Tensor, q_heads: int, window: Rotation, sink: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
    """Of queries and keys `[tokens, q_heads + kv_heads, head_dim]`: the queries for the window and for the sinks (the
    same tensor where `sink` is None), and the keys."""
    q, k = qk[:, :q_heads], qk[:, q_heads:]
    if serves(qk.device):
        return rope(q, k, _angles(window), None if sink is None else _angles(sink))
    turned = rotate(qk, window)
    q_window = turned[:, :q_heads]
    return q_window, q_window if sink is None else rotate(q, sink), turned[:, q_heads:]


def _angles(rotation: Rotation) -> Angles:
    return Angles(rotation.cos.squeeze(1), rotation.sin.squeeze(1))
