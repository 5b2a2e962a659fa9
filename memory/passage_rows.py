"""Rows of passages.db as the dataclasses of memory.types."""

from __future__ import annotations

import json

from memory.types import Passage, PassageId, Place, Source, SourceId, SourceKind

COLUMNS = (
    "p.id, p.source, s.kind, s.title, s.origin, p.ordinal, p.page, p.line, p.start, p.end, p.message, p.role, "
    "p.time, p.text, p.confidence, CASE p.role WHEN 'digest' THEN (SELECT json_group_array(message) FROM "
    "(SELECT message FROM digested WHERE passage = p.id ORDER BY place)) END, "
    "CASE p.role WHEN 'digest' THEN (SELECT maker FROM digests WHERE passage = p.id) END, "
    "p.heading, (SELECT json_group_array(origin) FROM names WHERE source = s.id AND origin <> s.origin)"
)
FROM = "FROM passages p JOIN sources s ON s.id = p.source"


def to_passage(row: tuple[object, ...]) -> Passage:
    """A row of COLUMNS. A digest stands where its first turn stands."""
    *where, role, time, text, sure, turns, maker, heading, also = row
    identifier, source, kind, title, origin, ordinal, page, line, start, end, message = where
    summed_up = tuple(str(turn) for turn in json.loads(str(turns))) if turns is not None else ()
    return Passage(
        id=PassageId(str(identifier)),
        source=to_source(source, kind, title, origin, also),
        place=Place(
            to_integer(page),
            to_integer(line),
            summed_up[0] if summed_up else to_string(message),
            int(str(start)),
            int(str(end)),
            str(heading),
        ),
        ordinal=int(str(ordinal)),
        time=float(str(time)),
        text=str(text),
        role=to_string(role),
        confidence=None if sure is None else float(str(sure)),
        turns=summed_up,
        maker=to_string(maker) or "",
    )


def to_source(identifier: object, kind: object, title: object, origin: object, also: object = "[]") -> Source:
    """The columns of a source; `also` is a JSON list of the other paths of the same bytes."""
    others = tuple(map(str, json.loads(str(also))))
    return Source(SourceId(str(identifier)), SourceKind(str(kind)), str(title), str(origin), others)


def to_integer(value: object) -> int | None:
    """A column that may be NULL."""
    return None if value is None else int(str(value))


def to_string(value: object) -> str | None:
    """A column that may be NULL."""
    return None if value is None else str(value)
