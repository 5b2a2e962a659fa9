"""A chat's passage read with the turns around it: what was said before and after counts for it, less with distance.

Measured on LoCoMo (five chats, evidence found among ten, %): BM25 over single turns 62.9, over turns that take part of
their neighbours' words 79.0; vectors of single turns alone 46.0, of the mean with their neighbours 55.9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from memory.embed import Vectors
from memory.passages import Indexed
from memory.types import PassageId

REACH = 3
"""Turns on either side that count."""
_WORDS = {-3: 0.1, -2: 0.2, -1: 0.5, 1: 0.3, 2: 0.1}
"""How much of a neighbour's words a turn takes: an answer lives from its question more than the reverse."""
_MEANING = {-3: 0.1, -2: 0.25, -1: 0.5, 1: 0.4, 2: 0.2, 3: 0.1}
_CONTEXT = 0.3
"""What a word of the date, the title or the heading counts."""
_PART = 0.3
"""How much of a neighbour's words a document's part takes."""
_SPEAKERS = ("user", "assistant")
"""A digest stands where it was made, between turns that it may say nothing of."""
_SITTING_SECONDS = 3 * 3600.0
"""A longer silence ends a conversation: what was said before it is no context."""
_TURN = (0.6, 0.4)
"""BM25's k1 and b for turns: they are short, and a second occurrence says little."""
_DOCUMENT = (1.5, 0.75)
"""The same for parts of documents, which say more of what they are about. Of an eighth of CMRC2018's questions 92.0 %
find their paragraph first with a turn's, 92.8 % so, and 93.3 to 93.5 % with their neighbours' words as well."""

_SITTING_BEST = 3
"""Of so many of its best rows a sitting's worth is the mean."""

_APART = 1 << 40
"""More than any running number: keys of different sources never meet."""

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class Pool:
    """Passages with what stands around them, in the order of source and running number; scores are arrays in the same
    order."""

    def __init__(self, rows: Sequence[Indexed]) -> None:
        self.rows = rows
        sources = {source: number for number, source in enumerate(dict.fromkeys(row.source for row in rows))}
        self._key = np.array([sources[row.source] * _APART + row.ordinal for row in rows], dtype=np.int64)
        self._time = np.array([row.time for row in rows])
        self._is_turn = np.array([row.role in _SPEAKERS for row in rows], dtype=bool)
        self._is_part = np.array([row.message is None for row in rows], dtype=bool)
        self._words = [row.body.split() for row in rows]

    def words(self, number: int) -> frozenset[str]:
        """The distinct words of a row."""
        return frozenset(self._words[number])

    def _neighbours(self, shares: Mapping[int, float]) -> Iterator[tuple[float, Numbers, Numbers]]:
        """For each offset its share, the rows that have a neighbour there in the same conversation, and those
        neighbours."""
        for offset, share in shares.items():
            at = np.searchsorted(self._key, self._key + offset).clip(max=len(self._key) - 1)
            same = (self._key[at] == self._key + offset) & self._is_turn & self._is_turn[at]
            close = np.abs(self._time[at] - self._time) <= _SITTING_SECONDS * abs(offset)
            there = np.flatnonzero(same & close)
            yield share, there, at[there]

    def _parts(self) -> Iterator[tuple[float, Numbers, Numbers]]:
        """The same for documents: the part before and the one after, where a question's words may stand as well."""
        for offset in (-1, 1):
            at = np.searchsorted(self._key, self._key + offset).clip(max=len(self._key) - 1)
            there = np.flatnonzero((self._key[at] == self._key + offset) & self._is_part & self._is_part[at])
            yield _PART, there, at[there]

    def bm25(self, rarity: Mapping[str, float]) -> Scores:
        """BM25 of each row over its own words and its neighbours', for terms with these weights."""
        counts, context = _counted(self._words, rarity), self._contexts(rarity)
        lengths = np.array([len(words) for words in self._words], dtype=np.float32)
        merged, merged_lengths = counts + _CONTEXT * context, lengths.copy()
        for share, there, beside in (*self._neighbours(_WORDS), *self._parts()):
            merged[there] += share * counts[beside]
            merged_lengths[there] += share * lengths[beside]
        relative = merged_lengths / (merged_lengths.mean() or 1.0)
        most, length = (
            np.where(self._is_part, *pair).astype(np.float32) for pair in zip(_DOCUMENT, _TURN, strict=True)
        )
        saturation = (most * (1.0 - length + length * relative))[:, None]
        weights = np.array(list(rarity.values()), dtype=np.float32)
        return np.asarray((merged * (1.0 + most[:, None]) / (merged + saturation)) @ weights, dtype=np.float32)

    def _contexts(self, terms: Collection[str]) -> Scores:
        """How often what stands above each row has each term, [rows, terms]. Many rows share it: a day, a title."""
        place = {context: number for number, context in enumerate(dict.fromkeys(row.context for row in self.rows))}
        counted = _counted([context.split() for context in place], terms)
        return np.asarray(counted[[place[row.context] for row in self.rows]])

    def of_sittings(self, scores: Scores) -> Scores:
        """For each row how good the best of its sitting (of its document) are: the mean of the three best scores
        there. What a question is about was talked about more than once."""
        apart = np.diff(self._key // _APART) > 0
        apart |= np.abs(np.diff(self._time)) > _SITTING_SECONDS
        sitting = np.concatenate([[0], np.cumsum(apart)])
        order = np.lexsort((-scores, sitting))
        first = np.searchsorted(sitting, np.arange(sitting[-1] + 1))
        place = np.arange(len(scores)) - first[sitting[order]]
        best = order[place < _SITTING_BEST]
        total = np.bincount(sitting[best], weights=scores[best])
        return np.asarray((total / np.bincount(sitting[best]))[sitting], dtype=np.float32)

    def cosines(self, question: Vectors, vectors: Mapping[PassageId, Vectors]) -> tuple[Scores, Scores]:
        """Each row's similarity with the question, alone and as the mean with its neighbours; rows without a vector
        stay at -1."""
        known = np.array([row.id in vectors for row in self.rows])
        nothing = np.zeros_like(question)
        own = np.stack([vectors.get(row.id, nothing) for row in self.rows])
        mean = own.copy()
        for share, there, beside in self._neighbours(_MEANING):
            mean[there] += share * own[beside]
        norms = np.linalg.norm(mean, axis=1)
        alone, among = own @ question, (mean @ question) / np.where(norms > 0, norms, 1.0)
        return np.where(known, alone, np.float32(-1.0)), np.where(known, among, np.float32(-1.0))


def _counted(rows: Sequence[Sequence[str]], terms: Collection[str]) -> Scores:
    """How often each row has each term, [rows, terms]."""
    at = {term: number for number, term in enumerate(terms)}
    counts = np.zeros((len(rows), len(at)), dtype=np.float32)
    for number, words in enumerate(rows):
        for term in at.keys() & set(words):
            counts[number, at[term]] = words.count(term)
    return counts
