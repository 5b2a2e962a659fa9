"""The text layer of a whole PDF as sections: pages in reading order, without running titles, cut at headings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memory.chunking import Section
from memory.ingest.pdf_layout import Piece, pieces
from memory.ingest.pdf_lines import Line
from memory.ingest.pdf_margins import without_margins

_LARGER = 1.18
"""Times the size of the text from which a short paragraph is a heading, in a file without an outline."""
_CELL = 15
"""Characters up to which a line may be a cell of a table: those do not say how large the text is."""
_SENTENCE_ENDS = ".,;:。，；："
_MOST_HEADING_LINES, _LONGEST_HEADING = 3, 140


@dataclass(frozen=True, slots=True)
class Title:
    """An entry of the outline: `level` counts from 1."""

    level: int
    text: str


def sections(pages: Mapping[int, list[Line]], outline: Mapping[int, Sequence[Title]]) -> list[Section]:
    """Sections of the pages (1-based) that have a text layer; each knows the headings it stands under."""
    numbers = sorted(pages)
    bare = without_margins([pages[number] for number in numbers])
    usual = _usual_size(bare)
    out: list[Section] = []
    under: list[Title] = []
    for number, lines in zip(numbers, bare, strict=True):
        due = list(outline.get(number, ()))
        marked = [(_title(piece, due, usual, bool(outline)), piece) for piece in pieces(lines)]
        out += _page(number, marked, under)
        for title in due:  # the outline names a heading that does not stand on the page
            _go_under(under, title)
    return out


def _usual_size(pages: Sequence[list[Line]]) -> float:
    sizes = Counter[float]()
    for page in pages:
        for line in page:
            if len(line.text) > _CELL:
                sizes[line.size] += len(line.text)
    return sizes.most_common(1)[0][0] if sizes else math.inf


def _title(piece: Piece, due: list[Title], usual: float, outlined: bool) -> Title | None:
    """The heading that a piece is. A title of the outline is taken off `due` when it is met."""
    if piece.lines > _MOST_HEADING_LINES or len(piece.text) > _LONGEST_HEADING or piece.text.startswith("|"):
        return None
    words = _words(piece.text)
    for title in due:
        wanted = _words(title.text)
        if wanted and (words == wanted or (words.endswith(wanted) and len(words) - len(wanted) <= 6)):
            due.remove(title)
            return Title(title.level, piece.text)
    if outlined or piece.size < _LARGER * usual or not any(letter.isalpha() for letter in piece.text):
        return None
    if piece.text[-1] in _SENTENCE_ENDS:
        return None
    return Title(1 if piece.size > 1.5 * usual else 2, piece.text)


def _words(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _page(number: int, marked: Sequence[tuple[Title | None, Piece]], under: list[Title]) -> Iterator[Section]:
    parts: list[str] = []
    start = 0

    def section() -> Section:
        return Section("\n\n".join(parts), page=number, heading=" › ".join(t.text for t in under), start=start)

    alone = False  # nothing but headings so far: they go with the text below them
    for title, piece in marked:
        if title is not None:
            if parts and not alone:
                done = section()
                yield done
                start, parts = start + len(done.text) + 2, []
            _go_under(under, title)
            parts.append(f"{'#' * min(title.level, 6)} {' '.join(piece.text.split())}")
            alone = True
        else:
            parts.append(piece.text)
            alone = False
    if parts:
        yield section()


def _go_under(under: list[Title], title: Title) -> None:
    while under and under[-1].level >= title.level:
        under.pop()
    under.append(title)
