"""Is this a Python that aios-chat runs on?"""

from __future__ import annotations

import platform
import sys

from app.doctor.check import Check, Status

NEEDED = (3, 11)


def check(version: tuple[int, int, int] | None = None) -> Check:
    """Compare this Python's version (or the one given) with what aios-chat needs."""
    have = version or sys.version_info[:3]
    detail = f"{platform.python_implementation()} {'.'.join(map(str, have))}, {sys.executable}"
    if have[:2] < NEEDED:
        needed = ".".join(map(str, NEEDED))
        return Check("Python", Status.FAILURE, detail, f"Install Python {needed} or newer and reinstall aios-chat.")
    return Check("Python", Status.OK, detail)
