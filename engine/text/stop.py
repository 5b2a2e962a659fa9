"""Stop strings: nothing of them, and nothing after them, reaches the person."""

from __future__ import annotations


class StopStrings:
    """Holds back only text that may still become a stop string, so streamed text equals the batch text."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.matched = False

    def push(self, text: str) -> str:
        """Add text; returns what is safe to show. After a match, `matched` is set and everything later is dropped."""
        if self.matched:
            return ""
        self._held += text
        hits = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if hits:
            # The one that is complete first, so that it does not matter in which pieces the text came.
            self.matched = True
            shown, self._held = self._held[: min(hits)[1]], ""
            return shown
        keep = max((_live_prefix(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def flush(self) -> str:
        """The held text, when the answer ended without a match."""
        shown, self._held = self._held, ""
        return "" if self.matched else shown


def _live_prefix(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
