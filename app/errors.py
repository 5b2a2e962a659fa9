"""The one kind of error that a person reads."""

from __future__ import annotations

from typing import ClassVar


class PersonError(Exception):
    """Its message is one sentence: what was wrong and what to do. It ends a command with `exit_code`."""

    exit_code: ClassVar[int] = 1
