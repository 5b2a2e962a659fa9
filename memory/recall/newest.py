"""Of two statements of the person about the same thing the later one first: what held in March may not in June."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from memory.recall.cues import asks, speaker
from memory.recall.search import Candidate
from memory.types import SourceKind
from memory.words import content_terms

_LOOKED_AT = 12
_NEAR_SCORE, _NEAR_COSINE = 0.2, 0.2
"""How far apart they may be: what fits the question much less well is about something else."""
_SHARED = 0.5
"""Share of the shorter one's words with content that both hold."""
_ASKED_FOR = 0.75
"""Share of the question's words that both hold."""
_JUST = 1e-6
_FORMER = re.compile(
    r"\b(first|former(ly)?|original(ly)?|(?<!how )old|initial(ly)?|used to|back then|at first|before)\b|"
    r"以前|原来|最初|最早|过去|旧|老",
    re.IGNORECASE,
)


def newest_first(
    candidates: Sequence[Candidate], value: Callable[[Candidate], float], question: str
) -> list[Candidate]:
    """The candidates, best first by `value`; a later statement is lifted just above the earlier ones that it may
    contradict. One who asks for how things were is left alone."""
    if _FORMER.search(question):
        return list(candidates)
    about = frozenset(content_terms(question))
    worth = {candidate.passage.id: value(candidate) for candidate in candidates}
    lifted = dict(worth)
    statements = [candidate for candidate in candidates[:_LOOKED_AT] if _is_statement(candidate)]
    terms = {one.passage.id: frozenset(content_terms(one.passage.text)) for one in statements}
    statements.sort(key=lambda one: one.passage.time)
    for number, later in enumerate(statements):
        mine = later.passage
        for earlier in statements[:number]:
            other = earlier.passage
            near = worth[other.id] - worth[mine.id] <= _NEAR_SCORE and _alike(earlier, later)
            if near and other.time < mine.time and _of_the_same(terms[other.id], terms[mine.id], about):
                lifted[mine.id] = max(lifted[mine.id], lifted[other.id] + _JUST)
    raised = (replace(one, score=one.score + lifted[one.passage.id] - worth[one.passage.id]) for one in candidates)
    return sorted(raised, key=lambda one: -lifted[one.passage.id])


def _is_statement(candidate: Candidate) -> bool:
    passage = candidate.passage
    return passage.source.kind is SourceKind.CHAT and passage.role == "user" and not asks(passage)


def _alike(one: Candidate, other: Candidate) -> bool:
    close = abs(one.cosine - other.cosine) <= _NEAR_COSINE
    return close and speaker(one.passage.text) == speaker(other.passage.text)


def _of_the_same(one: frozenset[str], other: frozenset[str], about: frozenset[str]) -> bool:
    """Whether two texts share what they are about: most of their own words, or nearly all that is asked for."""
    both = one & other
    if not both & about:
        return False
    return len(both) >= _SHARED * min(len(one), len(other)) or len(both & about) >= _ASKED_FOR * len(about)
