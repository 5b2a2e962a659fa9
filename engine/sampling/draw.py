"""The draw itself, by random numbers that depend on the seed, the position and the token only (see `kernels.noise`).

A replay, a prefix-cache hit and a chat in another batch draw the same, and so does another device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.sampling.filters import Candidates
from engine.types import Position
from kernels.noise import gumbel, noise_key


def best(scores: Tensor) -> Tensor:
    """The id `[]` of the highest of `scores` `[vocab]`, of equals the first."""
    if scores.device.type == "cpu":
        # With vector instructions: 0.005 instead of 0.1 ms for 49,152 on one core.
        return torch.tensor(scores.numpy().argmax())
    return scores.argmax()


def drawn(candidates: Candidates, seed: int, position: Position) -> Tensor:
    """Index `[]` into the candidates of one drawn by their probabilities: the highest of score + Gumbel noise."""
    return (candidates.scores + gumbel(candidates.ids, noise_key(seed, position))).argmax()
