"""Text to read: plain sentences that never repeat, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

_WHO = "the baker, my neighbour, a surveyor, the old captain, our teacher, the nurse, a poet, the miller"
_DID = "found, repaired, described, forgot, painted, measured, carried home, sold, borrowed, returned, admired, hid"
_WHAT = (
    "a copper kettle, the garden gate, two maps, a letter, the long ladder, some apples, the blue boat, an old clock"
)
_WHERE = "behind the mill, near the harbour, at the market, under the bridge, in the attic, by the river, on the hill"
_WHEN = "before breakfast, in the rain, last spring, after the concert, on a Tuesday, when nobody looked, at noon"
_THEN = "was pleased, told nobody, wrote it down, laughed, went to bed early, asked for advice, began again, kept quiet"
_LISTS = [text.split(", ") for text in (_WHO, _DID, _WHAT, _WHERE, _WHEN, _WHO, _THEN)]


def sentences(seed: int) -> Iterator[str]:
    """Sentences without end; those of two seeds differ from the first words on."""
    rng = random.Random(seed)
    while True:
        who, did, what, where, when, other, then = (rng.choice(some) for some in _LISTS)
        count = rng.randrange(2, 9000)
        yield f"{who[0].upper()}{who[1:]} {did} {what} {where} {when}, {count} steps from home, and {other} {then}."


def text(seed: int, count: int) -> str:
    """So many sentences."""
    return " ".join(sentence for sentence, _ in zip(sentences(seed), range(count), strict=False))
