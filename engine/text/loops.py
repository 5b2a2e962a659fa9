"""Answers that repeat themselves for ever: found by exact repetition of tokens.

Small models and chats far beyond what a model was trained on fall into loops, and a loop fills the window with
itself. An answer is a loop when its end is one passage over and over: at least four times and over at least 240
tokens, so that a sentence of 20 tokens may be said a dozen times and a verse of 60 four times. Rules, tables of
numbers, forms and code repeat legitimately; there sixteen times and 960 tokens are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LONGEST_PERIOD = 512
"""Tokens of the longest passage whose repetition is noticed; the history that is looked at is four of them."""
PROSE_TIMES, PROSE_TOKENS = 4, 240
LAYOUT_TIMES, LAYOUT_TOKENS = 16, 960


@dataclass(frozen=True, slots=True)
class Repetition:
    """The last `span` tokens repeat with this period; both 0 when nothing worth looking at is repeated."""

    period: int
    span: int

    def is_loop(self, passage: str, *, code: bool) -> bool:
        """Whether to end the answer. `passage` is the text of the last period; `code`: it stands in a code fence."""
        if code or not is_prose(passage):
            return self.span >= max(LAYOUT_TOKENS, LAYOUT_TIMES * self.period)
        return self.span > 0


NONE = Repetition(0, 0)


class RepetitionFinder:
    """Follows an answer token by token."""

    def __init__(self) -> None:
        periods = np.arange(1, LONGEST_PERIOD + 1)
        self._needed = np.maximum(PROSE_TOKENS, PROSE_TIMES * periods) - periods
        # _recent[0] is the newest token; _runs[p - 1] counts how long each token has equalled the one p before it.
        self._recent = np.full(LONGEST_PERIOD, -1, dtype=np.int64)
        self._runs = np.zeros(LONGEST_PERIOD, dtype=np.int64)

    def push(self, token: int) -> Repetition:
        """Add a token; the shortest period that would make prose a loop, NONE while there is none."""
        self._runs += 1
        self._runs *= self._recent == token
        self._recent[1:] = self._recent[:-1]
        self._recent[0] = token
        enough = self._runs >= self._needed
        shortest = int(enough.argmax())
        return Repetition(shortest + 1, int(self._runs[shortest]) + shortest + 1) if enough[shortest] else NONE


def is_prose(passage: str) -> bool:
    """Whether at least half of what is visible in it are letters."""
    visible = [character for character in passage if not character.isspace()]
    return 2 * sum(character.isalpha() for character in visible) >= max(1, len(visible))
