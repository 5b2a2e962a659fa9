"""The decoder: embedding, layers of attention and MLP, head. It knows no pages; attention is handed in.

It knows no families either: what one changes is in `ModelConfig`, or is a weight that is there or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.linear import Linear, Table, size_of
from engine.model.mlp import Mlp
from engine.model.pointwise import add_norm, norm, rotated
from engine.model.rope import Rotation


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. `qkv` `[(q_heads + 2 * kv_heads) * head_dim, hidden]` is stacked so that a token costs two matrix
    products, not four.

    Norms are float32, and None where the family has none: before attention and MLP (`attention_norm`, `mlp_norm`),
    after them (`*_post_norm`), of queries and keys (`q_norm`, `k_norm`: `[head_dim]` for each head, or as wide as all).
    """

    attention_norm: Tensor | None
    qkv: Linear
    out: Linear
    mlp_norm: Tensor | None
    mlp: Mlp
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    attention_post_norm: Tensor | None = None
    mlp_post_norm: Tensor | None = None

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its linear maps."""
        return self.qkv, self.out, *self.mlp.linears

    @property
    def norms(self) -> tuple[Tensor, ...]:
        """Its vectors."""
        before, after = (self.attention_norm, self.mlp_norm), (self.attention_post_norm, self.mlp_post_norm)
        return tuple(norm for norm in (*before, *after, self.q_norm, self.k_norm) if norm is not None)


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
    """The rotations of a batch, for each of `ModelConfig.ropes`: `window` at each token's position; `sink` for its
    query against the sink pages, None while no session of the batch has evicted anything and both are the same."""

    window: tuple[Rotation, ...]
    sink: tuple[Rotation, ...] | None


Attend = Callable[[int, Tensor, Tensor, Tensor, Tensor], Tensor]
"""attend(layer, q_window, q_sink, k, v) -> `[tokens, q_heads, head_dim]`; q `[tokens, q_heads, head_dim]`, k and v
`[tokens, kv_heads, head_dim]`; the result is contiguous. Stores k and v as a side effect."""


class Decoder:
    """A decoder-only transformer in the shape that `ModelConfig` says."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        self.config = config
        self.weights = weights
        ropes = config.ropes
        self._rope_of = [None if kind.rope is None else ropes.index(kind.rope) for kind in config.layer_kinds]

    def forward(self, tokens: Tensor, phases: Phases, attend: Attend) -> Tensor:
        """Run `tokens` `[tokens]` through all layers; returns the hidden states `[tokens, hidden]`, not normed."""
        hidden = self.weights.embedding.rows(tokens)
        if self.config.embedding_scale != 1:
            # Rounded to the type that the model runs in, as Gemma's own code does: 55.4 is 55.5 in bfloat16.
            hidden = hidden * torch.tensor(self.config.embedding_scale, dtype=hidden.dtype)
        for index, layer in enumerate(self.weights.layers):
            attended = self._attention(index, layer, self._norm(hidden, layer.attention_norm), phases, attend)
            attended = self._norm(attended, layer.attention_post_norm)
            hidden, x = self._add_norm(hidden, attended, layer.mlp_norm)
            mixed = layer.mlp(x)
            hidden = self._add(hidden, self._norm(mixed, layer.mlp_post_norm))
        return hidden

    def _attention(self, index: int, layer: LayerWeights, x: Tensor, phases: Phases, attend: Attend) -> Tensor:
        config, count = self.config, x.shape[0]
        q_and_k = config.q_heads + config.kv_heads
        heads = layer.qkv(x).view(count, -1, config.head_dim)
        qk, v = heads[:, :q_and_k], heads[:, q_and_k:]
        if layer.q_norm is not None:
            q, k = qk[:, : config.q_heads], qk[:, config.q_heads :]
            qk = torch.cat((self._norm_heads(q, layer.q_norm), self._norm_heads(k, layer.k_norm)), dim=1)
        rope = self._rope_of[index]
        q_window, k = qk[:, : config.q_heads], qk[:, config.q_heads :]
        q_sink = q_window
        if rope is not None:
            sink = None if phases.sink is None else phases.sink[rope]
            q_window, q_sink, k = rotated(qk, config.q_heads, phases.window[rope], sink)
        return layer.out(attend(index, q_window, q_sink, k, v).view(count, -1))

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token, float32 `[tokens, vocab]`."""
        config = self.config
        logits = self.weights.head(self._norm(hidden, self.weights.norm)).float()
        if config.logit_scale != 1:
            logits = logits * config.logit_scale
        return logits if config.logit_cap is None else torch.tanh(logits / config.logit_cap) * config.logit_cap

    def _add(self, hidden: Tensor, x: Tensor) -> Tensor:
        return hidden + (x if self.config.residual_scale == 1 else x * self.config.residual_scale)

    def _add_norm(self, hidden: Tensor, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """`_add`, and the norm of that, where it has one."""
        if weight is None:
            added = self._add(hidden, x)
            return added, added
        return add_norm(hidden, x, self.config.residual_scale, weight, self.config.norm_eps)

    def _norm_heads(self, heads: Tensor, weight: Tensor | None) -> Tensor:
        """Norm `heads` `[tokens, heads, head_dim]` in groups as wide as the weight: each head, or all at once."""
        assert weight is not None
        return self._norm(heads.reshape(heads.shape[0], -1, weight.shape[0]), weight).view(heads.shape)

    def _norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None:
            return x
        return norm(x, weight, self.config.norm_eps)
