"""Ids and errors of the engine. Position (in the chat) and slot (in memory) are two types and never mixed."""

from __future__ import annotations

from typing import NewType

Position = NewType("Position", int)
"""Where a token stands in its session, counted from 0; grows for ever."""
Slot = NewType("Slot", int)
"""Where a token's K and V lie in the pool: `page * page_size + offset`."""
PageId = NewType("PageId", int)
"""A physical page of the pool."""
SessionId = NewType("SessionId", int)
MessageKey = NewType("MessageKey", str)
"""The caller's name for a message; the engine only hands it back in events."""
PageKey = NewType("PageKey", bytes)
"""What a page is known by: a hash of everything that its K and V depend on, see cache/prefix.py."""


class EngineError(Exception):
    """One sentence for the person: what was wrong, with the numbers, and what to do."""


class QuotaError(EngineError):
    """The system prompt, or what is pinned, leaves no room for a ring inside the quota."""


class PoolFullError(EngineError):
    """Every session's worth of pages is taken: close one first."""


class UnsupportedModelError(EngineError):
    """A family, rotary kind, or weight type this engine does not read; names the file's own and what is supported."""


class ModelFileError(EngineError):
    """A model file is missing, truncated or inconsistent."""
