"""Which passages a search may return, as a rule for one and as rows of the store."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from memory.lexical import Admitted, Read, Rows
from memory.types import Passage, SourceId, SourceKind

_FEW = 5_000
"""Rows up to which those that may be returned are listed (2 ms) and nothing else is looked at."""
_IN = "IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which passages a search may return; None means any."""

    kind: SourceKind | None = None
    sources: tuple[SourceId, ...] | None = None
    messages: frozenset[str] | None = None
    documents: frozenset[SourceId] | None = None
    """Of documents, only these; chats are not concerned."""

    without: frozenset[SourceId] = frozenset()
    """Sources that are left out."""

    def admits(self, passage: Passage) -> bool:
        """Whether `passage` is inside."""
        return passage.source.id not in self.without and (
            (self.kind is None or passage.source.kind is self.kind)
            and (self.sources is None or passage.source.id in self.sources)
            and (self.messages is None or passage.place.message in self.messages)
            and (
                self.documents is None
                or passage.source.kind is not SourceKind.DOCUMENT
                or passage.source.id in self.documents
            )
        )


def admitted(within: Filter, read: Read) -> Admitted:
    """The rows inside, for the lexical index."""
    conditions, parameters = _conditions(within)
    if not conditions:
        return Admitted()
    inside = f"SELECT number FROM passages WHERE {' AND '.join(conditions)}"
    few = read(f"{inside} LIMIT ?", *parameters, _FEW + 1)
    if len(few) <= _FEW:
        return Admitted(only=np.sort(np.array([row[0] for row in few], dtype=np.int64)))

    def of(rows: Rows) -> Rows:
        # The plus keeps SQLite from looking up all that is inside, and these rows among it.
        some = f"{inside.replace('source IN', '+source IN')} AND number {_IN}"
        found = read(some, *parameters, json.dumps(rows.tolist()))
        return rows[np.isin(rows, np.array([row[0] for row in found], dtype=np.int64))]

    return Admitted(of=of)


def _conditions(within: Filter) -> tuple[list[str], list[object]]:
    """SQL over passages; messages alone find their rows by an index, else the sources do."""
    conditions, parameters = list[str](), list[object]()
    if within.messages is not None:
        conditions.append(f"message {_IN}")
        parameters.append(json.dumps(sorted(within.messages)))
    source = "source" if within.messages is None else "+source"
    if within.kind is not None:
        conditions.append(f"{source} IN (SELECT id FROM sources WHERE kind = ?)")
        parameters.append(within.kind)
    if within.sources is not None:
        conditions.append(f"{source} {_IN}")
        parameters.append(json.dumps(within.sources))
    if within.documents is not None and within.kind is not SourceKind.CHAT:
        conditions.append(
            f"{source} IN (SELECT value FROM json_each(?) UNION ALL SELECT id FROM sources WHERE kind IN (?, ?))"
        )
        parameters += [json.dumps(sorted(within.documents)), SourceKind.CHAT, SourceKind.WEB]
    return conditions, parameters
