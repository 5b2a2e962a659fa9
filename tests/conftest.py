"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Speed is never what these tests are about, and the machine may be busy.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

SLOW_SECONDS = 1800
"""A story on the real model takes minutes where the machine is busy; what hangs still ends."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have more time than the others, unless they say themselves how much."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
