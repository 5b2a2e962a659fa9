"""The disk: documents and turns in, passages out.

`Memory` is exported lazily: importing this package, or `memory.types`, costs nothing but the standard
library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.memory import Memory

__all__ = ["Memory"]


def __getattr__(name: str) -> object:
    if name == "Memory":
        from memory.memory import Memory

        return Memory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
