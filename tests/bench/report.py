"""How every benchmark ends: one `name value` a line."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The middle of several rounds."""
    return statistics.median(values)


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times as fast ours is, of seconds a round: the median over rounds, so that what else the machine does
    in a round hits both."""
    return median([other / own for other, own in zip(theirs, ours, strict=True)])


def percentile(values: Sequence[float], percent: int) -> float:
    """What so many percent of the values stay below."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def report(**figures: float) -> None:
    """Print the figures."""
    print()
    for name, value in figures.items():
        print(f"{name} {value:.3f}" if abs(value) < 10 else f"{name} {value:.2f}")
