"""The decoder: embedding, layers of attention and gated MLP, head. It knows no pages; attention is handed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.rope import Rotation, rotate


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. `qkv` `[(q_heads + 2 * kv_heads) * head_dim, hidden]` and `gate_up` `[2 * intermediate, hidden]`
    are stacked so that a token costs four matrix products a layer, not seven."""

    attention_norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None = None
    out_bias: Tensor | None = None
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`embedding` and `head` `[vocab, hidden]` (one tensor when tied)."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor

    @property
    def bytes(self) -> int:
        """Bytes of all weights, a tied head counted once."""
        tensors = [self.embedding, self.norm]
        if self.head is not self.embedding:
            tensors.append(self.head)
        for layer in self.layers:
            tensors += [getattr(layer, name) for name in LayerWeights.__dataclass_fields__]
        return sum(t.numel() * t.element_size() for t in tensors if t is not None)


@dataclass(frozen=True, slots=True)
class Phases:
    """The rotations of a batch: `window` at each token's position; `sink` for its query against the sink pages,
    None while no session of the batch has evicted anything and both are the same."""

    window: Rotation
    sink: Rotation | None


Attend = Callable[[int, Tensor, Tensor, Tensor, Tensor], Tensor]
"""attend(layer, q_window, q_sink, k, v) -> `[tokens, q_heads, head_dim]`; q `[tokens, q_heads, head_dim]`, k and v
`[tokens, kv_heads, head_dim]`; the result is contiguous. Stores k and v as a side effect."""


class Decoder:
    """A decoder-only transformer in the shape that `ModelConfig` says."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        self.config = config
        self.weights = weights

    def forward(self, tokens: Tensor, phases: Phases, attend: Attend) -> Tensor:
        """Run `tokens` `[tokens]` through all layers; returns the hidden states `[tokens, hidden]`, not normed."""
        config, count = self.config, tokens.shape[0]
        hidden = F.embedding(tokens, self.weights.embedding)
        rotated = config.q_heads + config.kv_heads
        for index, layer in enumerate(self.weights.layers):
            normed = self._norm(hidden, layer.attention_norm)
            qkv = F.linear(normed, layer.qkv, layer.qkv_bias).view(count, -1, config.head_dim)
            qk = rotate(qkv[:, :rotated], phases.window)
            q_window, k = qk[:, : config.q_heads], qk[:, config.q_heads :]
            q_sink = rotate(qkv[:, : config.q_heads], phases.sink) if phases.sink is not None else q_window
            mixed = attend(index, q_window, q_sink, k, qkv[:, rotated:])
            hidden = hidden + F.linear(mixed.view(count, -1), layer.out, layer.out_bias)
            normed = self._norm(hidden, layer.mlp_norm)
            gate, up = F.linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate).mul_(up), layer.down, layer.down_bias)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token, float32 `[tokens, vocab]`."""
        return F.linear(self._norm(hidden, self.weights.norm), self.weights.head).float()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), self.config.norm_eps).to(x.dtype)
