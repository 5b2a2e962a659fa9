"""What leaves a chat's window when it is full."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """How a full window goes on.

    round-robin: the ring slides by pages, see `window.py`; what a token saw when it was computed stays in its K and V.
    truncate: whole messages are dropped before an answer, so that it fits, and the rest is computed again: the plain
        limit that other programs have. Nothing leaves while an answer is written; a full window ends it.
    scored: the pages that attention used most stay and the least used one goes, see `heat.py`.
    recompute: the window of round-robin, computed again from its text for every token. No cache, and no traces of what
        left: the sliding window with re-computation of StreamingLLM's paper (arXiv 2309.17453), for comparison.
    """

    ROUND_ROBIN = "round-robin"
    SCORED = "scored"
    TRUNCATE = "truncate"
    RECOMPUTE = "recompute"

    @property
    def reads_ahead(self) -> bool:
        """Whether what is computed before an answer is asked for is of use to it."""
        return self in (Policy.ROUND_ROBIN, Policy.SCORED)

    @property
    def keeps_tails(self) -> bool:
        """Whether a page is of use that was not full when its session left: not where nothing is gone on with."""
        return self is not Policy.RECOMPUTE

    @property
    def guesses(self) -> bool:
        """Whether tokens may be computed that may turn out to be others: not where each leaves its mark (heat), and
        not where what is computed with one is not there for the next."""
        return self in (Policy.ROUND_ROBIN, Policy.TRUNCATE)
