"""Whether a passage is near enough to a question to be worth the model's attention: one number, and the bar for it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache

from memory.period import Period
from memory.recall.search import DENSE_WEIGHT, Candidate, Query
from memory.store import Store
from memory.types import Passage
from memory.words import content_terms, is_unspaced, tokens

OWN_BAR = 0.45
"""For a question that asks for stored things, or speaks of the person's own. What is below was not asked for."""
BAR = 0.55
"""For any other question: what is stored may only look like it."""
TALK_BAR = 0.4
"""For what stands in the same talk as a passage that passed its own bar."""
FOLLOW_UP_BAR = 0.3
"""The same for a follow-up: it leaves out what the talk is about, and so may what answers it ("she hates tuna")."""
TOLD_BAR = 0.7
"""For what asks nothing: a search by keywords, and "sounds good, talk tomorrow"."""
_COVERAGE_WORTH = 0.6
_WORDS_ONLY = 0.2
"""What words alone start with, where the embedder does not read the script."""
_TITLE_WORTH = 0.5
"""What a word of the question counts that stands not in the passage but in its talk's or file's title, or its heading:
"the beta" in a talk called "Falcon project". Of the 91 questions of tests/cases/recall that are only measured, 5 missed
what they asked for without it and 3 with it; no more of those that need nothing were given anything."""
_NAME_WORTH = 0.15
_ABSENT = 0.35
"""Of an unspaced script's bigrams many span two words and stand nowhere: their absence says little."""
_NAME = re.compile(r"(?<![.!?:;\n] )(?<![\n#>*-])(?<=\S )[A-ZÀ-Þ][\w'’-]*|\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]+|\b\w+_\w+\b")


class Gate:
    """The bar for one question."""

    def __init__(self, store: Store, query: Query, own: bool, candidates: Sequence[Candidate]) -> None:
        """`candidates` are what the search found: a word that one of them writes as a name is one in all of them,
        for people write "porto" as well."""
        self._own = own
        self._when = query.when if own else None
        text = query.text if self._when is None else query.text.replace(self._when.words, " ")
        self._weights = _weights(store, content_terms(text))
        self._when_worth = _rarity_of(store, self._when) if self._when is not None else 0.0
        self._total = sum(self._weights.values()) + self._when_worth
        self._read = min(1.0, query.dense_weight / DENSE_WEIGHT)
        asked = self._weights.keys()
        self._names = {t for c in candidates if not c.words.isdisjoint(asked) for t in _names(c.passage)}

    def nearness(self, candidate: Candidate) -> float:
        """How near a passage is, about 0 to 1.7: its cosine, the share of the question's weight of words that it
        holds, and a little more when one of them is a name there."""
        held = self._weights.keys() & candidate.words
        above = (self._weights.keys() & set(_terms_of(_title(candidate.passage)))) - held
        found = sum(self._weights[term] for term in held) + _TITLE_WORTH * sum(self._weights[term] for term in above)
        found += self._when_worth * self._is_of_then(candidate)
        coverage = found / self._total if self._total else 0.0
        if len(self._weights) == 1 and not self._own:
            coverage = 0.0  # One shared word of a one-word question is chance.
        by_meaning = candidate.cosine + _COVERAGE_WORTH * coverage
        by_words = _WORDS_ONLY + coverage if coverage else 0.0
        named = _NAME_WORTH if held & self._names else 0.0
        return self._read * by_meaning + (1.0 - self._read) * by_words + named

    def _is_of_then(self, candidate: Candidate) -> bool:
        """Whether it was said in the days that the question names, speaks of them, or holds their date as written."""
        if self._when is None:
            return False
        literal = set(content_terms(self._when.words)) if self._when.is_literal else set()
        return candidate.timely or (bool(literal) and literal <= candidate.words)


def _title(passage: Passage) -> str:
    return f"{passage.source.title} {passage.place.heading}"


def _rarity_of(store: Store, when: Period) -> float:
    """What the time counts in a question that names one: as a word would that stands in as many passages."""
    count = store.passages.count()
    df = min(count, sum(store.passages.frequencies(when.marks).values()))
    return math.log(1.0 + (count - df + 0.5) / (df + 0.5))


def _names(passage: Passage) -> set[str]:
    """Terms that stand in a passage as names: with a capital inside a sentence, with digits, or as identifiers."""
    return {term for name in _NAME.findall(passage.text) for term in _terms_of(name)}


@lru_cache(maxsize=4096)
def _terms_of(text: str) -> tuple[str, ...]:
    return tuple(tokens(text))


def _weights(store: Store, terms: Sequence[str]) -> dict[str, float]:
    """Inverse document frequency of each term, as in BM25."""
    count = store.passages.count()
    frequencies = store.passages.frequencies(terms)
    weights: dict[str, float] = {}
    for term in terms:
        df = frequencies.get(term, 0)
        weights[term] = math.log(1.0 + (count - df + 0.5) / (df + 0.5)) * (
            _ABSENT if df == 0 and is_unspaced(term) else 1.0
        )
    return weights
