"""What one check of this machine says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """Something is slower or missing, but aios-chat works."""
    FAILURE = "failure"
    """Something that aios-chat needs does not work."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor: `detail` is what was seen, `fix` what to do about it ("" when nothing)."""

    name: str
    status: Status
    detail: str
    fix: str = ""
