"""Hybrid search: words and meaning, each over a passage and what stands around it, fused by weighted min-max scores.

The two indexes name the passages to look at; the scores are then computed for those and their neighbours (window.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from memory.embed import Vectors
from memory.filter import Filter
from memory.period import Period, period
from memory.recall.cues import MOST, TIMELY, Cues
from memory.recall.window import REACH, Pool, Scores
from memory.store import Store
from memory.types import Passage, PassageId, SourceKind
from memory.words import content_terms, joins, query_terms, tokens, unspaced_share

DEPTH = 60
"""Candidates of each leg."""
DENSE_WEIGHT = 0.5
_SITTING = 0.1
"""What it adds that the sitting or document a passage stands in holds other good ones."""
_JOINING = 0.4
"""What a bigram that only asks or joins ("什么", "是在") counts of its rarity: no text answers by using a question's
words, and they are rare in texts that tell. Of CMRC2018's paragraphs 95.6 % come first with all of it, 97.0 with
none, 97.4 with 0.3 to 0.5 of it, in either half of the questions."""
_FURTHEST = 400
"""Candidates of a leg at most, where many are in the window already."""
_ENOUGH = 2
"""Of the passages looked at, this many times `depth` are read whole."""
_PICTURE_WORTH = 0.7
"""The cosine, among texts, that a picture counts as which surely shows what is asked for."""
_LONG_QUERY = 600
"""Characters of a query that are embedded: a long pasted text drowns the question (measured elsewhere:
89.8 to 1.0 %)."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question ready for both legs. `dense_weight` is 0 where the embedder cannot read the script; `when` are the
    days that it names."""

    text: str
    terms: tuple[str, ...]
    dense_weight: float
    when: Period | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage found. `cosine` and `coverage` (share of the query's weight of words that it holds) are
    absolute; `dense`, `lexical` and `score` are relative to this search, 0..1. `timely`: said in the days that the
    question names, or speaking of them."""

    passage: Passage
    cosine: float
    coverage: float
    dense: float
    lexical: float
    score: float
    words: frozenset[str] = frozenset()
    """The index terms of its text, where a search found it."""
    timely: bool = False


def query_of(text: str, embedder_reads_unspaced: bool, asked: float) -> Query:
    """Analyse a question asked at `asked` (Unix seconds): its terms with the marks of the days that it names, and how
    much the dense leg may say about it."""
    share = 0.0 if embedder_reads_unspaced else unspaced_share(text)
    weight = 0.0 if share > 0.5 else DENSE_WEIGHT * (1.0 - share)
    short = text if len(text) <= _LONG_QUERY else f"{text[: _LONG_QUERY // 2]}\n{text[-_LONG_QUERY // 2 :]}"
    when = period(short, asked)
    return Query(short, tuple(query_terms(short) if when is None else _dated_terms(short, when)), weight, when)


def _dated_terms(text: str, when: Period) -> list[str]:
    """The words of "last Tuesday" stand in what was said on any day: the marks of the day are looked for instead."""
    terms = query_terms(text if when.is_literal else text.replace(when.words, " "))
    return list(dict.fromkeys((*terms, *when.marks)))


def search(
    store: Store, query: Query, within: Filter, depth: int = DEPTH, seen: Collection[str] = frozenset()
) -> list[Candidate]:
    """Candidates, best first. By words only while the vectors are not there or do not count for this script. Of `seen`
    messages and passages those come in addition that stand above the `depth` best others."""
    rarity = _rarity(store, query.terms)
    further = min(depth + len(seen), max(depth, _FURTHEST))
    legs = [store.match(query.terms, further, within)]
    vector: Vectors | None = None
    if query.dense_weight > 0:
        vector, near = store.near(query.text, further, within)
        legs.append([found.id for found in near])
    if seen:
        legs = [_until(store, leg, depth, seen) for leg in legs]
    if not any(legs):
        return _with_pictures([], store, query, within)
    depth = max(depth, *map(len, legs))
    pool = Pool(store.around(list(dict.fromkeys(chain(*legs))), REACH))
    lexical = pool.bm25(rarity)
    lexical /= lexical.max() or 1.0
    alone, dense, dense_weight = np.zeros_like(lexical), np.zeros_like(lexical), 0.0
    if vector is not None:
        alone, dense = _meaning(pool, vector, store)
        dense_weight = query.dense_weight if alone.max() > -1.0 else 0.0
    fused = dense_weight * dense + (1.0 - dense_weight) * lexical + _SITTING * pool.of_sittings(lexical)
    best = np.argsort(-fused, kind="stable")[: _ENOUGH * depth]
    passages = store.get([pool.rows[number].id for number in best])
    weights = {term: rarity[term] for term in content_terms(query.text) if term in rarity} or rarity
    standing = {(passage.source.id, passage.ordinal): passage for passage in passages.values()}
    looked_for = Cues(query.text)
    most = MOST + (TIMELY if query.when is not None else 0.0)
    marks = frozenset(query.when.marks if query.when is not None else ())
    found: list[Candidate] = []
    for number in best:
        row = pool.rows[number]
        passage = passages.get(row.id)
        if passage is not None and within.admits(passage):
            before = standing.get((passage.source.id, passage.ordinal - 1))
            timely = passage.source.kind is SourceKind.CHAT and not marks.isdisjoint(row.context.split())
            worth = looked_for.worth(passage, before) + (TIMELY if timely else 0.0)
            score = (float(fused[number]) + worth) / (1.0 + _SITTING + most)
            words = pool.words(number)
            cosine, coverage = max(0.0, float(alone[number])), _coverage(words, weights)
            relative = float(dense[number]), float(lexical[number])
            found.append(Candidate(passage, cosine, coverage, *relative, score, words, timely))
    found = _with_pictures(found, store, query, within)
    return sorted(found, key=lambda candidate: (-candidate.score, -candidate.passage.time, candidate.passage.ordinal))


def _with_pictures(found: list[Candidate], store: Store, query: Query, within: Filter) -> list[Candidate]:
    """The candidates with the pictures that show what is asked for, where an image embedder is in use."""
    seen = store.pictures.near(query.text) if store.pictures is not None and query.text.strip() else []
    passages = store.get([picture.id for picture in seen])
    by_id = {candidate.passage.id: candidate for candidate in found}
    for picture in seen:
        passage = passages.get(picture.id)
        if passage is None or not within.admits(passage):
            continue
        words = frozenset(tokens(passage.text))
        known = by_id.get(picture.id, Candidate(passage, 0.0, 0.0, 0.0, 0.0, 0.0, words))
        by_id[picture.id] = replace(
            known,
            cosine=max(known.cosine, _PICTURE_WORTH * picture.sureness),
            dense=max(known.dense, picture.sureness),
            score=max(known.score, picture.sureness / (1.0 + MOST)),
        )
    return list(by_id.values())


def _meaning(pool: Pool, vector: Vectors, store: Store) -> tuple[Scores, Scores]:
    """Cosines of the passages alone, and scores 0..1 of them with what stands around them."""
    alone, among = pool.cosines(vector, store.vectors([row.id for row in pool.rows]))
    return alone, _relative(among)


def _relative(cosines: Scores) -> Scores:
    """0 for the least similar of the known ones (and the unknown), 1 for the most similar."""
    known = cosines[cosines > -1.0]
    if not len(known):
        return np.zeros_like(cosines)
    low, high = float(known.min()), float(known.max())
    return np.clip((cosines - low) / (high - low), 0, 1) if high > low else (cosines > -1.0).astype(np.float32)


def _until(store: Store, ids: Sequence[PassageId], depth: int, seen: Collection[str]) -> list[PassageId]:
    """The first of these, up to the last of `depth` that are not `seen`."""
    messages = store.passages.messages(ids)
    left = depth
    for number, identifier in enumerate(ids):
        left -= identifier not in seen and messages.get(identifier) not in seen
        if not left:
            return list(ids[: number + 1])
    return list(ids)


def _coverage(words: frozenset[str], weights: Mapping[str, float]) -> float:
    total = sum(weights.values())
    return sum(weight for term, weight in weights.items() if term in words) / total if total else 0.0


def _rarity(store: Store, terms: Sequence[str]) -> dict[str, float]:
    """Inverse document frequency of each term, as in BM25; less of it for what only asks or joins."""
    count = store.passages.count()
    frequencies = store.passages.frequencies(terms)
    return {
        term: math.log(1.0 + (count - (df := frequencies.get(term, 0)) + 0.5) / (df + 0.5))
        * (_JOINING if joins(term) else 1.0)
        for term in terms
    }
