"""What leaves a chat's window when it is full, by name. The engine's own names must agree (tests)."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """`EXPLAINED` says each in a line."""

    ROUND_ROBIN = "round-robin"
    SCORED = "scored"
    TRUNCATE = "truncate"
    RECOMPUTE = "recompute"


_EACH = {
    Policy.ROUND_ROBIN: "the oldest page goes, while the chat goes on",
    Policy.SCORED: "the page that attention used least goes, while the chat goes on",
    Policy.TRUNCATE: "the oldest messages go before an answer and the rest is read again, as other programs do",
    Policy.RECOMPUTE: "as round-robin, with the window read again for every word (slow, for comparison)",
}
EXPLAINED = "What leaves a full window. " + " ".join(f"{policy}: {what}." for policy, what in _EACH.items())
