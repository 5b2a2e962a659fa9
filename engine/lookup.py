"""Guessing the next tokens from what was said before, without a second model."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 4
SHORTEST = 3
"""Tokens that must repeat before what followed them is guessed again; a longer match is tried first."""
MOST = 8
"""Tokens of one guess at most."""
LOOK_BACK = 16_384
"""Tokens of a chat that are looked up."""


class PromptLookup:
    """Prompt lookup decoding (Saxena, 2023; the same idea as LLMA, arXiv 2304.04487): where the last tokens stood
    before, the tokens that followed them then are guessed to follow now. An answer that quotes recalled passages,
    code or its own list gains most.

    A guess costs the model one pass over all its tokens, so guesses grow while they are right and shrink when they are
    not; after wrong ones nothing is guessed for a while, each time longer. Free text then costs little more than
    without guesses, and a quotation gains nearly all it can (tests/bench/guess.py).
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        self._end = 0
        self._length = MOST // 2
        self._rest = 0
        self._misses = 0

    def follow(self, past: Sequence[int], pending: Sequence[int]) -> None:
        """Take in what a history has grown by since the last call; a history that is another one is read anew."""
        end = len(past) + len(pending)
        count = end - self._end
        newest = [*past[-count - 1 :], *pending][-count - 1 :] if count > 0 else []
        if not self._tokens or not newest or newest[0] != self._tokens[-1]:
            self._tokens, self._after = [], {}
            newest = [0, *past[-LOOK_BACK:], *pending]
        for token in newest[1:]:
            self.push(token)
        self._end = end

    def push(self, token: int) -> None:
        """One more token of the history."""
        tokens = self._tokens
        # What ends here is entered only now: a match must have something after it.
        for size in range(SHORTEST, LONGEST + 1):
            if len(tokens) >= size:
                self._after[tuple(tokens[-size:])] = len(tokens)
        tokens.append(token)
        self._rest = max(0, self._rest - 1)

    def guess(self, most: int) -> list[int]:
        """Up to `most` tokens that followed the last ones before; none where they are new."""
        most = min(most, self._length)
        if most < 1 or self._rest:
            return []
        for size in range(LONGEST, SHORTEST - 1, -1):
            at = self._after.get(tuple(self._tokens[-size:])) if len(self._tokens) >= size else None
            if at is not None:
                return self._tokens[at : at + most]
        return []

    def judge(self, guessed: int, right: int) -> None:
        """Of `guessed` tokens the first `right` were what came."""
        if right:
            self._misses = 0
            self._length = min(MOST, self._length + 2) if right == guessed else right + 1
        else:
            self._misses = min(self._misses + 1, 4)
            self._length = MOST // 2
            self._rest = guessed * 2**self._misses
