"""How every benchmark ends: one `name value` a line."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The middle of several rounds."""
    return statistics.median(values)


def report(**figures: float) -> None:
    """Print the figures."""
    print()
    for name, value in figures.items():
        print(f"{name} {value:.2f}")
