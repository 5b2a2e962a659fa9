"""The draw itself, by random numbers that depend on the seed, the position and the token only.

A replay, a prefix-cache hit and a chat in another batch draw the same, and so does another device: the numbers are
counted, not generated in sequence (SplitMix64, doi 10.1145/2660193.2660195, of a key made of seed and position).
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.sampling.filters import Candidates
from engine.types import Position

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def best(scores: Tensor) -> Tensor:
    """The id `[]` of the highest of `scores` `[vocab]`, of equals the first."""
    if scores.device.type == "cpu":
        # With vector instructions: 0.005 instead of 0.1 ms for 49,152 on one core.
        return torch.tensor(scores.numpy().argmax())
    return scores.argmax()


def drawn(candidates: Candidates, seed: int, position: Position) -> Tensor:
    """Index `[]` into the candidates of one drawn by their probabilities: the highest of score + Gumbel noise."""
    return (candidates.scores + gumbel(candidates.ids, seed, position)).argmax()


def gumbel(ids: Tensor, seed: int, position: Position) -> Tensor:
    """Independent standard Gumbel numbers `[n]` (float64), one for each token of `ids` `[n]` at this position."""
    key = _mixed((_mixed(seed & _MASK) + position * _STEP) & _MASK)
    bits = _mixed_tensor((ids + 1).mul_(_signed(_STEP)).add_(_signed(key)))
    # 52 bits and a half: never 0 and never 1, whose logarithms would be infinite.
    uniform = _shifted(bits, 12).double().add_(0.5).mul_(2.0**-52)
    return uniform.log_().neg_().log_().neg_()


def _mixed(x: int) -> int:
    x = ((x ^ x >> 30) * _FIRST) & _MASK
    x = ((x ^ x >> 27) * _SECOND) & _MASK
    return x ^ x >> 31


def _mixed_tensor(x: Tensor) -> Tensor:
    """`_mixed` of each element, in place; int64 arithmetic wraps as uint64's does."""
    x.bitwise_xor_(_shifted(x, 30)).mul_(_signed(_FIRST))
    x.bitwise_xor_(_shifted(x, 27)).mul_(_signed(_SECOND))
    return x.bitwise_xor_(_shifted(x, 31))


def _shifted(x: Tensor, by: int) -> Tensor:
    # torch shifts int64 with the sign; the mask makes it a shift of the 64 bits.
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
