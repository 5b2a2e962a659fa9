"""What follows attention in a layer: a gated MLP, or a mixture of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.config import Activation
from engine.model.linear import Linear
from engine.model.pointwise import gated


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """`down(activation(gate(x)) * up(x))`, gate and up stacked in `gate_up` `[2 * intermediate, hidden]`; `down`
    `[hidden, intermediate]`."""

    activation: Activation
    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        """`x` and the result `[tokens, hidden]`."""
        return self.down(gated(self.gate_up(x), self.activation))

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its linear maps."""
        return self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """`active` of the experts run for a token, as `router` `[experts, hidden]` chooses (Shazeer et al., arXiv
    1701.06538, with the softmax taken over all experts before the choice)."""

    router: Linear
    experts: tuple[GatedMlp, ...]
    active: int
    normalised: bool

    def __call__(self, x: Tensor) -> Tensor:
        """`x` and the result `[tokens, hidden]`. Each expert that is chosen at all runs once, for all its tokens."""
        weights, chosen = self.router(x).float().softmax(-1).topk(self.active, dim=-1)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights.to(x.dtype)
        out = torch.zeros_like(x)
        for index in sorted(set(chosen.flatten().tolist())):
            tokens, rank = (chosen == index).nonzero(as_tuple=True)
            out.index_add_(0, tokens, self.experts[index](x[tokens]) * weights[tokens, rank, None])
        return out

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Its linear maps."""
        return self.router, *(linear for expert in self.experts for linear in expert.linears)


Mlp = GatedMlp | MixtureOfExperts
