"""The decoder: embedding, layers of attention and gated MLP, head. It knows no pages; attention is handed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.linear import Linear, Table, size_of
from engine.model.rope import Rotation, rotate


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. `qkv` `[(q_heads + 2 * kv_heads) * head_dim, hidden]` and `gate_up` `[2 * intermediate, hidden]`
    are stacked so that a token costs four matrix products a layer, not seven."""

    attention_norm: Tensor
    qkv: Linear
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its linear maps."""
        return self.qkv, self.out, self.gate_up, self.down

    @property
    def norms(self) -> tuple[Tensor, ...]:
        """Its vectors."""
        return self.attention_norm, self.mlp_norm


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`embedding` and `head` `[vocab, hidden]` (one object when tied)."""

    embedding: Table
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear

    @property
    def bytes(self) -> int:
        """Bytes of all weights, a tied head counted once."""
        return sum(linear.bytes for linear in self._linears()) + size_of(*self._norms())

    @property
    def parameters(self) -> int:
        """Numbers of the model, a tied head counted once."""
        return sum(linear.parameters for linear in self._linears()) + sum(norm.numel() for norm in self._norms())

    def _linears(self) -> list[Linear]:
        ends = [self.embedding] if self.head is self.embedding else [self.embedding, self.head]
        return [*ends, *(linear for layer in self.layers for linear in layer.linears)]

    def _norms(self) -> list[Tensor]:
        return [self.norm, *(norm for layer in self.layers for norm in layer.norms)]


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
        hidden = self.weights.embedding.rows(tokens)
        rotated = config.q_heads + config.kv_heads
        for index, layer in enumerate(self.weights.layers):
            normed = self._norm(hidden, layer.attention_norm)
            qkv = layer.qkv(normed).view(count, -1, config.head_dim)
            qk = rotate(qkv[:, :rotated], phases.window)
            q_window, k = qk[:, : config.q_heads], qk[:, config.q_heads :]
            q_sink = rotate(qkv[:, : config.q_heads], phases.sink) if phases.sink is not None else q_window
            mixed = attend(index, q_window, q_sink, k, qkv[:, rotated:])
            hidden = hidden + layer.out(mixed.view(count, -1))
            normed = self._norm(hidden, layer.mlp_norm)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)
            hidden = hidden + layer.down(F.silu(gate).mul_(up))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token, float32 `[tokens, vocab]`."""
        return self.weights.head(self._norm(hidden, self.weights.norm)).float()

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), self.config.norm_eps).to(x.dtype)
