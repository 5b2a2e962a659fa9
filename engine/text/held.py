"""Text that is held back while it may become a stop string or a banned one.

Of a stop string, and of what follows it, nothing is shown. A banned string is taken back before anything of it was
shown: the answer is rewound to the token that began it. Without either, text is shown as it comes.
"""

from __future__ import annotations

from bisect import bisect_right


class HeldText:
    """The text of one answer, token by token. Shown text is always a beginning of it that stays as it is.

    `stopped` is set when a stop string is complete; then the text ends before it. `banned_from` is set when a banned
    string is complete: the index of the token that began it, see `take_back`. What counts is which string is complete
    first, so that it does not matter in which pieces the text came; of two at once, the stop string.
    """

    def __init__(self, stops: tuple[str, ...] = (), banned: tuple[str, ...] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._banned = tuple(_folded(string) for string in banned if string)
        self._longest = max((len(string) for string in (*self._stops, *self._banned)), default=0)
        self._text = ""
        self._ends: list[int] = []
        self._shown = 0
        self.stopped = False
        self.banned_from: int | None = None

    @property
    def shown(self) -> str:
        """All that was shown so far."""
        return self._text[: self._shown]

    @property
    def settled(self) -> int:
        """How many tokens cannot be taken back any more, because their text was shown."""
        return bisect_right(self._ends, self._shown) if self._shown else 0

    def tail(self, tokens: int) -> str:
        """The text of the last tokens, shown or not."""
        return self._text[self._ends[-tokens - 1] if tokens < len(self._ends) else 0 :]

    def push(self, text: str) -> str:
        """Add a token's text, maybe ""; returns what may be shown now."""
        if self.stopped:
            return ""
        self._text += text
        self._ends.append(len(self._text))
        held = self._text[self._shown :]
        stop, banned = _first_complete(held, self._stops), _first_complete(_folded(held), self._banned)
        if stop is not None and (banned is None or stop[0] <= banned[0]):
            self.stopped = True
            self._text = self._text[: self._shown + stop[1]]
            return self._show(len(self._text))
        if banned is not None:
            self.banned_from = bisect_right(self._ends, self._shown + banned[1])
            return ""
        return self._show(self._safe())

    def take_back(self, keep: int) -> None:
        """Forget all tokens but the first `keep`, which is `banned_from` or more."""
        del self._ends[keep:]
        self._text = self._text[: self._ends[-1] if self._ends else 0]
        self.banned_from = None

    def flush(self) -> str:
        """What was held, when the answer ended without a stop string."""
        return self._show(len(self._text))

    def _show(self, until: int) -> str:
        new = self._text[self._shown : until]
        self._shown = max(self._shown, until)
        return new

    def _safe(self) -> int:
        """How much of the text no string can reach any more.

        With banned strings, text is shown by whole tokens, and only up to where no string would be open if all that
        follows were taken back: whatever was shown can then neither be taken back nor become part of a string.
        """
        until = self._closed(len(self._text))
        while self._banned:
            at = bisect_right(self._ends, until)
            edge = self._ends[at - 1] if at else 0
            until = self._closed(edge)
            if until == edge:
                break
        return max(until, self._shown)

    def _closed(self, end: int) -> int:
        """Where the longest beginning of a string starts that the text [0, end) ends with; `end` for none."""
        first = max(self._shown, end - max(0, self._longest - 1))
        text = self._text[first:end]
        return first + min(_open(text, self._stops), _open(_folded(text), self._banned))


def _first_complete(text: str, strings: tuple[str, ...]) -> tuple[int, int] | None:
    """(end, start) of the string that is complete first; of those that end together the longest."""
    return min(((at + len(s), at) for s in strings if (at := text.find(s)) >= 0), default=None)


def _open(text: str, strings: tuple[str, ...]) -> int:
    """Where in `text` the longest unfinished string starts; its length for none."""
    unfinished = (at for at in range(len(text)) for s in strings if len(text) - at < len(s) and s.startswith(text[at:]))
    return next(unfinished, len(text))


def _folded(text: str) -> str:
    """In small letters, every character still one character (unlike `str.lower`: İ would become two)."""
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)
