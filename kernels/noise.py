"""Random numbers that are counted, not generated in sequence: they depend on the seed, the position and the token only.

SplitMix64 (doi 10.1145/2660193.2660195) of a key made of seed and position.
"""

from __future__ import annotations

from torch import Tensor

MASK = (1 << 64) - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The generator's step, and the factors of its output function."""


def noise_key(seed: int, position: int) -> int:
    """What the numbers of all tokens at a position are made of, as an int64."""
    return _signed(_mixed((_mixed(seed & MASK) + position * STEP) & MASK))


def gumbel(ids: Tensor, key: int | Tensor) -> Tensor:
    """Independent standard Gumbel numbers (float64), one for each token of `ids` (int64); `key` int64, of one position
    or, as a tensor that broadcasts over `ids`, of several."""
    bits = _mixed_tensor((ids + 1).mul_(_signed(STEP)) + key)
    # 52 bits and a half: never 0 and never 1, whose logarithms would be infinite.
    uniform = _shifted(bits, 12).double().add_(0.5).mul_(2.0**-52)
    return uniform.log_().neg_().log_().neg_()


def _mixed(x: int) -> int:
    x = ((x ^ x >> 30) * FIRST) & MASK
    x = ((x ^ x >> 27) * SECOND) & MASK
    return x ^ x >> 31


def _mixed_tensor(x: Tensor) -> Tensor:
    """`_mixed` of each element, in place; int64 arithmetic wraps as uint64's does."""
    x.bitwise_xor_(_shifted(x, 30)).mul_(_signed(FIRST))
    x.bitwise_xor_(_shifted(x, 27)).mul_(_signed(SECOND))
    return x.bitwise_xor_(_shifted(x, 31))


def _shifted(x: Tensor, by: int) -> Tensor:
    # torch shifts int64 with the sign; the mask makes it a shift of the 64 bits.
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
