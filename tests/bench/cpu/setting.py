"""What all parts of `tests.bench.cpu` share: how often, how wide, and the text that is read."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROUNDS, THREADS = int(os.environ.get("ROUNDS", "5")), int(os.environ.get("THREADS", "2"))
WINDOW = 1024
"""Tokens of the window, ours and the peers'."""
ROOM = 128
"""Tokens that a peer leaves free for an answer when it drops old messages: fewer than people do, so that it need not
drop, and lose, more than we do."""
PAGE = 32
SYSTEM = "You are a helpful assistant."
QUESTION = "And what did the keeper write on the day after that one?"
SENTENCE = "On day {} of the voyage the keeper of the light wrote down {} ships and a wind from the south. "

Figures = dict[str, float]
"""`name value` lines."""


def text_of(seed: int, sentences: int) -> str:
    """Text that no other seed has, so that no page of it is known from before; the same number of tokens for each seed
    (a digit is a token)."""
    return "".join(SENTENCE.format(1000 + (20 * seed + i) % 9000, (seed + i) % 10) for i in range(sentences))
