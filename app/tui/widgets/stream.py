"""Feeds a streaming answer into one Markdown widget, coalesced."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from textual.timer import Timer

if TYPE_CHECKING:
    from textual.widgets import Markdown

INTERVAL = 1 / 20
"""Seconds between two writes: at 50 tokens/s 20 Hz costs 24 % of a core, a write for each token 42 %."""
REST = 3
"""A write and the drawing of it take one part in so many of the time, the rest is for keys: where drawing is slow (on a
busy machine, of a long answer) text comes in larger pieces, and typing stays as it was."""


class AnswerStream:
    """Writes the growing text of one answer, at most 20 times a second, and not while it is held.

    It is offered the whole text so far and writes what is new, so a lost or repeated piece cannot show.
    Nothing runs between two offers: one timer is set when there is something to write.
    """

    def __init__(self, markdown: Markdown, written: str = "") -> None:
        self._markdown = markdown
        self._written = written
        self._latest = written
        self._held = False
        self._timer: Timer | None = None
        self._drawing = False
        self._next = 0.0
        self._one_at_a_time = asyncio.Lock()

    @property
    def waiting(self) -> bool:
        """Whether there is text that is not on the screen yet."""
        return len(self._latest) > len(self._written)

    def offer(self, text: str) -> None:
        """The answer's text so far."""
        self._latest = text
        self._schedule()

    def hold(self, held: bool) -> None:
        """Stop writing while the person reads further up; what came meanwhile is written on release."""
        self._held = held
        self._schedule()

    def _schedule(self) -> None:
        if self._held or self._drawing or self._timer is not None or not self.waiting:
            return
        self._timer = self._markdown.set_timer(max(0.001, self._next - monotonic()), self._write)

    async def _write(self) -> None:
        self._timer = None
        async with self._one_at_a_time:
            if self._held or not self.waiting:
                return
            began, self._drawing = monotonic(), True
            piece, self._written = self._latest[len(self._written) :], self._latest
            await self._markdown.append(piece)
        self._markdown.call_after_refresh(self._drawn, began)

    def _drawn(self, began: float) -> None:
        self._drawing = False
        self._next = began + max(INTERVAL, REST * (monotonic() - began))
        self._schedule()

    async def finish(self, text: str) -> None:
        """Show the final text, whatever was written before (citation marks may have been removed from it)."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        async with self._one_at_a_time:
            if text.startswith(self._written):
                if len(text) > len(self._written):
                    await self._markdown.append(text[len(self._written) :])
            else:
                await self._markdown.update(text)
            self._written = self._latest = text
