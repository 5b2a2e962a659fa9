"""What an engine holds and has saved, counted, never estimated."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.pool import PoolStats
from engine.cache.prefix import PrefixStats


@dataclass(frozen=True, slots=True)
class EngineStats:
    """`pages` of the pool by state, `known` full pages and their images on the host; since the engine was made,
    `computed_tokens` went through the model and `found_tokens` were taken up from known pages instead."""

    pages: PoolStats
    known: PrefixStats
    page_bytes: int
    chats: int
    admitted: int
    computed_tokens: int
    found_tokens: int
