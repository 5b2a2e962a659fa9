"""What an engine is made for: how many chats, how much of each."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cache.formats.kv_format import KvFormat
from engine.policy import Policy
from engine.types import EngineError, QuotaError

MIN_RING_PAGES = 2
"""With one page, the next token would push out everything but itself."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`quota_tokens` a session (rounded down to whole pages), for at most `sessions` at once.

    `chunk_tokens` is the longest prefill chunk: it bounds how long a running answer or a cancel waits. `host_bytes`
    of ordinary memory keep the images of pages that left a window or whose chat was swapped out. `guess_tokens`, up to
    so many at once, are guessed from what was said before and checked in one pass (see lookup.py); 0 for none.
    `kv_format` is how full pages are kept, `policy` what leaves a full window.
    """

    quota_tokens: int
    page_size: int = 32
    sessions: int = 1
    chunk_tokens: int = 128
    host_bytes: int = 0
    guess_tokens: int = 0
    kv_format: KvFormat = KvFormat.AUTO
    policy: Policy = Policy.ROUND_ROBIN

    def __post_init__(self) -> None:
        if self.page_size < 1 or self.sessions < 1 or self.chunk_tokens < 1:
            raise EngineError("page size, sessions and chunk tokens must be at least 1")
        for name, least in (("host_bytes", self.host_bytes), ("guess_tokens", self.guess_tokens)):
            if least < 0:
                raise EngineError(f"{name} is {least}; it must be 0 (off) or more")
        if self.policy is Policy.SCORED and self.kv_format not in (KvFormat.AUTO, KvFormat.FULL):
            raise EngineError(
                f"the policy scored keeps pages as they are and does not go with the page format {self.kv_format}: "
                "choose auto or full, or the policy round-robin"
            )
        if self.quota_pages < MIN_RING_PAGES + 1:
            raise QuotaError(
                f"a window of {self.quota_tokens} tokens is {self.quota_pages} pages of {self.page_size}; "
                f"at least {(MIN_RING_PAGES + 1) * self.page_size} tokens are needed"
            )

    @property
    def quota_pages(self) -> int:
        """Pages of one session: the hard limit."""
        return self.quota_tokens // self.page_size
