"""Tokens to text while they arrive: never half a character, never a character twice."""

from __future__ import annotations

from engine.text.tokenizer import Tokenizer

REPLACEMENT = "�"
# A character is at most 4 bytes, and a BPE token may end one and begin the next; past 12 tokens the bytes are broken.
MAX_HELD_TOKENS = 12


class Detokenizer:
    """Streams the text of one answer; all deltas together are the text of all tokens.

    Tokens are decoded in a small moving group, because a token's text may depend on the one before it (a leading
    space) and a character may be spread over several (an emoji over four). The group is `_ids[_prefix:]`, of which
    `_ids[_prefix:_read]` has been emitted.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._prefix = 0
        self._read = 0

    def push(self, token: int) -> str:
        """Add a token; returns the new whole characters, maybe none."""
        self._ids.append(token)
        emitted = self._tokenizer.decode(self._ids[self._prefix : self._read])
        text = self._tokenizer.decode(self._ids[self._prefix :])
        held = len(self._ids) - self._read
        if len(text) <= len(emitted) or (text.endswith(REPLACEMENT) and held < MAX_HELD_TOKENS):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        del self._ids[: self._prefix]
        self._read -= self._prefix
        self._prefix = 0
        return text[len(emitted) :]

    def flush(self) -> str:
        """The rest at the end of the answer; an incomplete last character is dropped."""
        emitted = self._tokenizer.decode(self._ids[self._prefix : self._read])
        text = self._tokenizer.decode(self._ids[self._prefix :])
        self._prefix = self._read = len(self._ids)
        return text[len(emitted) :].rstrip(REPLACEMENT)
