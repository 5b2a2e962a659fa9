"""How recall came to what it delivered, for people who ask why: every passage that was weighed, and what became of
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memory.recall.rank import in_window, repeats
from memory.recall.search import Candidate, Query
from memory.types import PassageId, RecallRequest, Trace, Weighed

_MOST = 20
"""Passages that are told of: those after them were never near."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate, how near it is to the question, and how near it had to be (gate.py)."""

    candidate: Candidate
    nearness: float
    bar: float

    @property
    def passes(self) -> bool:
        """Whether it is near enough."""
        return self.nearness >= self.bar


def traced(
    request: RecallRequest,
    query: Query,
    judged: Sequence[Judged],
    ranked: Sequence[Candidate],
    delivered: Sequence[Candidate],
) -> Trace:
    """The trace of one recall; `ranked` is what was worth delivering, `delivered` what had room."""
    by_meaning = _places(judged, lambda one: one.candidate.cosine)
    by_words = _places(judged, lambda one: one.candidate.lexical)
    labels = {candidate.passage.id: number for number, candidate in enumerate(delivered, start=1)}
    worth = {candidate.passage.id for candidate in ranked}
    shown = [one for place, one in enumerate(judged) if place < _MOST or one.candidate.passage.id in labels]
    weighed = tuple(
        Weighed(
            passage=one.candidate.passage,
            by_meaning=by_meaning.get(one.candidate.passage.id),
            by_words=by_words.get(one.candidate.passage.id),
            cosine=round(one.candidate.cosine, 4),
            score=round(one.candidate.score, 4),
            nearness=round(one.nearness, 4),
            bar=one.bar,
            delivered=labels.get(one.candidate.passage.id),
            fate=_fate(one, request, labels, worth),
        )
        for one in shown
    )
    return Trace(query.text, query.terms, round(query.dense_weight, 4), len(judged), weighed, request.budget_tokens)


def _places(judged: Sequence[Judged], value: Callable[[Judged], float]) -> dict[PassageId, int]:
    """The place of each passage that a leg found, counted from 1."""
    found = sorted((one for one in judged if value(one) > 0), key=value, reverse=True)
    return {one.candidate.passage.id: place for place, one in enumerate(found, start=1)}


def _fate(one: Judged, request: RecallRequest, labels: dict[PassageId, int], worth: set[PassageId]) -> str:
    passage = one.candidate.passage
    if passage.id in labels:
        return "delivered"
    if repeats(passage, request):
        return "it is the question itself"
    if in_window(passage, request):
        return "the model sees it already"
    if not one.passes:
        return "too far from the question"
    if passage.id in worth:
        return "no room in the budget"
    return "says what a better one says, or is far behind the best"
