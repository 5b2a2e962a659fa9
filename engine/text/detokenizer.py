"""Tokens to text while they arrive: never half a character, never a character twice."""

from __future__ import annotations

from engine.text.tokenizer import Tokenizer

REPLACEMENT = "�"
# Bytes of a character that is not complete yet come out as U+FFFD at the end of the text. A character has at most 4
# bytes and a token at least one, so what is still open after 12 tokens (some of which may be silent) is broken bytes.
MAX_HELD_TOKENS = 12
# Tokens decoded together before the group moves on: a token's text may depend on those before it.
GROUP_TOKENS = 16


class Detokenizer:
    """Streams the text of one answer; all deltas together are the text of all tokens.

    Tokens are decoded in a small moving group, because a token's text may depend on the one before it (a leading
    space) and a character may be spread over several (an emoji over four). Of the group's text `_sent` characters
    have been handed out; only whole characters are, and the group is cut only where a character ends.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = 0
        self._held = 0
        self._cut = 0

    def push(self, token: int) -> str:
        """Add a token; returns the new whole characters, maybe none."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        # Of broken bytes only the last may still be the beginning of a character.
        whole = text.rstrip(REPLACEMENT) if self._held < MAX_HELD_TOKENS else text.removesuffix(REPLACEMENT)
        new = whole[self._sent :]
        self._held = 0 if new else self._held + 1
        self._sent = max(self._sent, len(whole))
        if whole == text:
            self._move_on()
        return new

    def _move_on(self) -> None:
        if len(self._ids) < GROUP_TOKENS:
            self._cut = self._cut or len(self._ids)
            return
        kept = self._tokenizer.decode(self._ids[self._cut :])
        if kept:
            del self._ids[: self._cut]
            self._sent = len(kept)
        self._cut = len(self._ids)

    def flush(self) -> str:
        """The rest at the end of the answer; an incomplete last character is dropped."""
        return self._tokenizer.decode(self._ids).rstrip(REPLACEMENT)[self._sent :]
