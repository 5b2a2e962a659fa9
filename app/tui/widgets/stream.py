"""Feeds a streaming answer into one Markdown widget, coalesced."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from textual.timer import Timer

if TYPE_CHECKING:
    from textual.widgets import Markdown
    from textual.widgets.markdown import MarkdownStream

INTERVAL = 1 / 20
"""Seconds between two writes: at 50 tokens/s 20 Hz costs 24 % of a core, a write for each token 42 %."""


class AnswerStream:
    """Writes the growing text of one answer, at most 20 times a second, and not while it is held.

    It is offered the whole text so far and writes what is new, so a lost or repeated piece cannot show.
    Nothing runs between two offers: one timer is set when there is something to write.
    """

    def __init__(self, markdown: Markdown, written: str = "") -> None:
        self._markdown = markdown
        self._stream: MarkdownStream | None = None
        self._written = written
        self._latest = written
        self._held = False
        self._timer: Timer | None = None
        self._last = 0.0

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
        if self._held or self._timer is not None or not self.waiting:
            return
        delay = max(0.001, self._last + INTERVAL - monotonic())
        self._timer = self._markdown.set_timer(delay, self._write)

    async def _write(self) -> None:
        self._timer = None
        if self._held or not self.waiting:
            return
        if self._stream is None:
            self._stream = self._markdown.get_stream(self._markdown)
        piece, self._written = self._latest[len(self._written) :], self._latest
        self._last = monotonic()
        await self._stream.write(piece)
        self._schedule()

    async def finish(self, text: str) -> None:
        """Show the final text, whatever was written before (citation marks may have been removed from it)."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if self._stream is not None:
            await self._stream.stop()
            self._stream = None
        if text.startswith(self._written):
            if len(text) > len(self._written):
                await self._markdown.append(text[len(self._written) :])
        else:
            await self._markdown.update(text)
        self._written = self._latest = text
