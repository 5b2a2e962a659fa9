"""What an engine holds and has saved, counted, never estimated."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.formats.kv_format import KvFormat
from engine.cache.pool import PoolStats
from engine.cache.prefix import PrefixStats
from engine.events import WindowState


@dataclass(frozen=True, slots=True)
class EngineStats:
    """`pages` of the pool by state; of those that are held, `as_computed` lie in the model's type and the others as
    `kv_format` says. `known` full pages and their images on the host. Of all `chats`, `windows` are those of the
    admitted ones, the one used last at the end. Since the engine was made, `computed_tokens` went through the model and
    `found_tokens` were taken up from known pages instead."""

    pages: PoolStats
    kv_format: KvFormat
    as_computed: int
    known: PrefixStats
    page_bytes: int
    chats: int
    windows: tuple[WindowState, ...]
    computed_tokens: int
    found_tokens: int
