"""The plain limit: which messages are dropped so that the next answer fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.types import Position
from engine.window import WindowShape


def answer_room(shape: WindowShape, max_tokens: int) -> int:
    """Tokens that are kept free for an answer of up to `max_tokens`: a quarter of the ring at most."""
    return min(max_tokens, max(1, shape.ring_tokens // 4))


def kept_from(
    shape: WindowShape, floor: Position, end: int, messages: Sequence[Position], users: Collection[Position]
) -> Position | None:
    """The position from which the history is kept so that the ring holds it up to `end`: `floor` when it does, else
    the beginning of a message, of a user message (`users`) if one of those will do: a model that was trained on turns
    reads no answer without its question. None when not even the newest message fits.

    `messages` are the positions at which messages begin, ascending.
    """
    if end <= shape.full_at(floor):
        return floor
    fitting = [first for first in messages if first > floor and end <= shape.full_at(first)]
    return next((first for first in fitting if first in users), fitting[0] if fitting else None)
