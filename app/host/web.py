"""What a web search found, on its way into the memory. See `app.host.wire`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebResult:
    """One page that was found: its address, its title and what the search engine shows of it."""

    url: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class KeepWeb:
    """Store these results for `seconds`; one that is known already is replaced. The answer is a tuple of their document
    ids, in order."""

    results: tuple[WebResult, ...]
    seconds: float
