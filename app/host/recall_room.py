"""How much of a window recalled text may take: the same for who recalls it and for who keeps room for it."""

from __future__ import annotations


def most_recalled(ring_tokens: int) -> int:
    """Tokens of recalled text that a ring takes with one question: half of it. The other half is for the question and
    the answer, which would push out of the window what was read for them."""
    return ring_tokens // 2
