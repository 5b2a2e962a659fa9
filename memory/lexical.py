"""The lexical index read in bounded time: which passages hold a question's words, however many there are.

FTS5's own ranking reads and scores every row that holds any of the words, 1.3 µs each and as much again to join it to
its passage: too long over 200,000. Here a word's rows are read as numbers (0.3 µs each), and what a word is worth in
BM25 is added up for each, as if it stood there once. Of the ten that FTS5 ranks best 99.5 % are then among the best 60
(200 questions of three sets over 20,000 passages); ranking counts the words itself (recall/window.py).
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]
Read = Callable[..., list[tuple[object, ...]]]

_MOST_ROWS = 20_000
"""Rows read of one word; of one that stands in more, the newest."""
_EXAMINED = (4, 40)
"""Rows shown to a filter for each one wanted: at first, and where few of those came through."""
_KNOWN_TERMS = 160
"""Words whose rows are kept until the next write: a follow-up searches twice, and the gate weighs them again."""
_COMMON_TERMS = 2_000
"""Common words whose counts are kept longer."""
_GROWN = 0.1
"""Share by which the store may grow or shrink before such a count is read again."""
_K1, _B = 1.2, 0.75
"""BM25's, as FTS5 has them."""


@dataclass(frozen=True, slots=True)
class Posting:
    """The rows that hold a word, newest first, and how many there are: more than `rows` when those were cut."""

    rows: Rows
    documents: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which rows may be returned: `only` these, in order, where they are few; else those that `of` lets pass."""

    only: Rows | None = None
    of: Callable[[Rows], Rows] | None = None


@dataclass(frozen=True, slots=True)
class _Rows:
    """How many words each row has, by its number (0 where there is none), how many rows and words there are."""

    lengths: Numbers
    count: int
    words: int


_NO_ROWS = _Rows(np.zeros(1, dtype=np.float32), 0, 0)


class _SinceWrite:
    """What was read since the last write."""

    def __init__(self) -> None:
        self.postings: OrderedDict[str, Posting] = OrderedDict()
        self.extended = False


class Lexicon:
    """Reads one lexical index through `read` (SQL and its parameters in, rows out). Any thread may ask."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lock = threading.RLock()
        self._since_write = _SinceWrite()
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._all = _NO_ROWS

    def written(self) -> None:
        """Passages were added. Who reads meanwhile goes on with the old answers, and they go with it."""
        self._since_write = _SinceWrite()

    def deleted(self) -> None:
        """Passages were removed: their row numbers may be given again."""
        with self._lock:
            self._all = _NO_ROWS
            self._since_write = _SinceWrite()

    def warm(self) -> None:
        """Read what the first search needs of every row: its length, 4 bytes."""
        self._rows()

    def count(self) -> int:
        """How many passages there are."""
        return self._rows().count

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many passages each term occurs; those that occur in none are left out."""
        most = self.count()
        return {term: min(most, found.documents) for term, found in self._postings(terms).items() if found.documents}

    def match(self, terms: Sequence[str], limit: int, admitted: Admitted) -> Rows:
        """The rows that match best of those admitted, at most `limit`, best first."""
        postings = self._postings(terms)
        rows, weights = self._weighed(postings, admitted.only)
        if admitted.of is None:
            return _heaviest(rows, weights, limit)
        for examined in _EXAMINED:
            best = admitted.of(_heaviest(rows, weights, examined * limit))
            if len(best) >= limit or len(rows) <= examined * limit:
                break
        return best[:limit]

    def _weighed(self, postings: Mapping[str, Posting], only: Rows | None) -> tuple[Rows, Numbers]:
        """The rows that hold any term, in order, and what they are worth."""
        every = self._rows()
        lengths, count = every.lengths, every.count
        sums = np.zeros(len(lengths), dtype=np.float32)
        for posting in postings.values():
            # One that was stored a moment ago may have no length here yet.
            sums[posting.rows[posting.rows < len(sums)]] += np.float32(_rarity(count, posting.documents))
        if only is None:
            rows = np.flatnonzero(sums)
        else:
            rows = only[only < len(sums)]
            rows = rows[sums[rows] > 0.0]
        relative = lengths[rows] / np.float32(max(1.0, every.words / max(1, count)))
        return rows, sums[rows] / (np.float32(1.0 + _K1 * (1.0 - _B)) + np.float32(_K1 * _B) * relative)

    def _postings(self, terms: Sequence[str]) -> dict[str, Posting]:
        found: dict[str, Posting] = {}
        with self._lock:
            known = self._since_write.postings
            for term in dict.fromkeys(terms):
                posting = known.get(term)
                if posting is None:
                    posting = known[term] = self._posting(term)
                    if len(known) > _KNOWN_TERMS:
                        known.popitem(last=False)
                found[term] = posting
        return found

    def _posting(self, term: str) -> Posting:
        rows = self._joined(
            "SELECT group_concat(rowid) FROM (SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY rowid DESC LIMIT ?)",
            f'"{term}"',
            _MOST_ROWS,
        )
        return Posting(rows, len(rows) if len(rows) < _MOST_ROWS else self._counted(term))

    def _counted(self, term: str) -> int:
        """In how many passages a common term stands: exact when it was read, and kept until the store is of another
        size."""
        count = self.count()
        known = self._counts.get(term)
        if known is None or abs(count - known[1]) > _GROWN * known[1]:
            known = _integer(self._read("SELECT count(*) FROM terms WHERE terms MATCH ?", f'"{term}"')), count
            self._counts[term] = known
            if len(self._counts) > _COMMON_TERMS:
                self._counts.popitem(last=False)
        return known[0]

    def _rows(self) -> _Rows:
        """All rows, with those added since they were last read."""
        with self._lock:
            since, known = self._since_write, self._all
            if since.extended:
                return known
            numbers = self._joined(
                "SELECT group_concat(number) FROM (SELECT number FROM lengths WHERE number >= ? ORDER BY number)",
                len(known.lengths),
            )
            if len(numbers):
                words = self._joined(
                    "SELECT group_concat(words) FROM (SELECT words FROM lengths WHERE number BETWEEN ? AND ? "
                    "ORDER BY number)",
                    len(known.lengths),
                    int(numbers[-1]),
                )
                lengths = np.zeros(int(numbers[-1]) + 1, dtype=np.float32)
                lengths[: len(known.lengths)] = known.lengths
                lengths[numbers] = words
                self._all = _Rows(lengths, known.count + len(numbers), known.words + int(words.sum()))
            since.extended = True
            return self._all

    def _joined(self, sql: str, *parameters: object) -> Rows:
        """The integers of a query that joins them with commas: half the time that fetching them as rows takes."""
        ((joined,),) = self._read(sql, *parameters)
        return np.fromstring("" if joined is None else str(joined), dtype=np.int64, sep=",")


def _rarity(count: int, documents: int) -> float:
    """Inverse document frequency, as in BM25; never negative, and never nothing."""
    return math.log(1.0 + max(0.5, count - documents + 0.5) / (documents + 0.5))


def _heaviest(rows: Rows, weights: Numbers, wanted: int) -> Rows:
    """So many of the heaviest, heaviest first; of equal ones the newest."""
    if len(rows) > wanted:
        least = np.partition(weights, -wanted)[-wanted]
        above, equal = np.flatnonzero(weights > least), np.flatnonzero(weights == least)
        chosen = np.concatenate([above, equal[len(equal) - (wanted - len(above)) :]])
        rows, weights = rows[chosen], weights[chosen]
    return rows[np.lexsort((-rows, -weights))]


def _integer(rows: Sequence[tuple[object, ...]]) -> int:
    return int(str(rows[0][0]))
