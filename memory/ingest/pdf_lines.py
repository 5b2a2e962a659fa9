"""The lines of text that a reader of a PDF page sees, with where they stand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from memory.ingest.clean import clean

_CHARACTER_FILLED, _CHARACTER_STROKED, _MONOSPACED = 16, 32, 8
_SMALLEST = 2.0
"""Points. The smallest print of contracts has 4."""
_FAINTEST = 20
"""Opacity of 255."""
_LIGHT = 0.8
"""Luminance from which a colour may vanish on a page: everything darker shows on white."""
_CONTRAST = 14
"""Grey levels of 255 between a letter and its ground below which nobody reads it."""
_PIXELS = 4_000_000
_BULLETS = {0xF0A7: "▪", 0xF0A8: "▪", 0xF0B7: "•", 0xF0D8: "•", 0xF0FC: "•", 0xF076: "•", 0xF02D: "–"}
"""What word processors set before the items of a list, in fonts of symbols without a Unicode map."""


@dataclass(frozen=True, slots=True)
class Line:
    """A run of text on one base line, in points from the top left of the page as it is read."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    fixed: bool = False
    """Set in a typewriter face: its line ends mean something."""

    @property
    def height(self) -> float:
        """Points from top to bottom."""
        return self.bottom - self.top


def lines_of(page: Any) -> list[Line]:
    """Visible lines, those that run across the main direction of the page last, with the addresses they link to."""
    import pymupdf

    flags = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_PRESERVE_LIGATURES
    raw = [
        line
        for block in page.get_text("dict", flags=flags)["blocks"]
        for line in block.get("lines", ())
        if any(span["text"].strip() for span in line["spans"])
    ]
    look = _Look(page)
    links = [(pymupdf.Rect(link["from"]), link["uri"]) for link in page.get_links() if _leads_out(link.get("uri"))]
    along: dict[int, list[Line]] = {}
    for line in raw:
        spans = [span for span in line["spans"] if look.shows(span)]
        text = clean("".join(span["text"] for span in spans)).translate(_BULLETS).replace("\n", " ").strip()
        if text:
            turned = _quarter(line["dir"])
            along.setdefault(turned, []).append(_line(text, spans, turned, links))
    if not along:
        return []
    # The direction of most letters is the page's: a stamp along the margin does not turn it.
    main = max(along, key=lambda turned: sum(len(line.text) for line in along[turned]))
    rest = [line for turned, lines in along.items() if turned != main for line in lines]
    below = max(line.bottom for line in along[main])
    return along[main] + [
        replace(line, left=0.0, right=1.0, top=below + 40.0 * number, bottom=below + 40.0 * number + line.size)
        for number, line in enumerate(rest, start=1)
    ]


def _line(text: str, spans: list[Any], turned: int, links: list[tuple[Any, str]]) -> Line:
    boxes = [span["bbox"] for span in spans if span["text"].strip()]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
    for rect, uri in [link for link in links if _meets(link[0], left, top, right, bottom)]:
        links.remove((rect, uri))
        if "://" not in text and uri.removeprefix("mailto:") not in text:
            text += f" ({clean(uri)})"
            links[:] = [link for link in links if link[1] != uri]  # told once on a page
    match turned:
        case 1:  # upwards
            left, top, right, bottom = -bottom, left, -top, right
        case 2:
            left, top, right, bottom = -right, -bottom, -left, -top
        case 3:  # downwards
            left, top, right, bottom = top, -right, bottom, -left
    sizes = Counter[float]()
    for span in spans:
        sizes[round(span["size"], 1)] += len(span["text"])
    fixed = all(span["flags"] & _MONOSPACED for span in spans)
    return Line(text, left, top, right, bottom, sizes.most_common(1)[0][0], fixed)


def _leads_out(uri: str | None) -> bool:
    return uri is not None and uri.startswith(("http://", "https://", "mailto:"))


def _meets(rect: Any, left: float, top: float, right: float, bottom: float) -> bool:
    """Whether the middle of a link's field stands on a line."""
    x, y = (rect.x0 + rect.x1) / 2, (rect.y0 + rect.y1) / 2
    return bool(left <= x <= right and top <= y <= bottom)


def _quarter(direction: tuple[float, float]) -> int:
    """Quarter turns against the clock of a writing direction."""
    return round(math.atan2(-direction[1], direction[0]) / (math.pi / 2)) % 4


class _Look:
    """Tells which spans of a page can be seen. The page is drawn only when one of them is in doubt."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._drawn: Any = None
        self._pictures: list[Any] | None = None

    def shows(self, span: Any) -> bool:
        """False for text that is too small, transparent, of the colour of its ground, or in the invisible mode with
        no picture beneath it (with one it is the text layer of a scan)."""
        if span["size"] < _SMALLEST:
            return False
        if not span["char_flags"] & (_CHARACTER_FILLED | _CHARACTER_STROKED):
            return self._on_a_picture(span["bbox"])
        if span["alpha"] < _FAINTEST:
            return False
        return _luminance(span["color"]) < _LIGHT or self._stands_out(span["bbox"])

    def _on_a_picture(self, box: tuple[float, float, float, float]) -> bool:
        if self._pictures is None:
            matrix = self._page.derotation_matrix if self._page.rotation else None
            self._pictures = [
                _rect(bounds, matrix) for kind, bounds in self._page.get_bboxlog() if kind.startswith("fill-im")
            ]
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        return any(rect.x0 <= x <= rect.x1 and rect.y0 <= y <= rect.y1 for rect in self._pictures)

    def _stands_out(self, box: tuple[float, float, float, float]) -> bool:
        import pymupdf

        if self._drawn is None:
            area = max(self._page.rect.width * self._page.rect.height, 1.0)
            scale = min(1.5, math.sqrt(_PIXELS / area))
            matrix = pymupdf.Matrix(scale, scale)
            picture = self._page.get_pixmap(matrix=matrix, colorspace="GRAY", alpha=False)
            self._drawn = (picture, self._page.rotation_matrix * matrix)
        picture, matrix = self._drawn
        part = (pymupdf.Rect(box) * matrix).irect & pymupdf.IRect(0, 0, picture.width, picture.height)
        if part.is_empty:
            return False
        samples, stride = picture.samples_mv, picture.stride
        rows = [samples[y * stride + part.x0 : y * stride + part.x1] for y in range(part.y0, part.y1)]
        return bool(max(max(row) for row in rows) - min(min(row) for row in rows) >= _CONTRAST)


def _rect(bounds: Any, matrix: Any) -> Any:
    import pymupdf

    rect = pymupdf.Rect(bounds)
    return rect if matrix is None else rect * matrix


def _luminance(colour: int) -> float:
    red, green, blue = colour >> 16 & 255, colour >> 8 & 255, colour & 255
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def bands(lines: list[Line]) -> Iterator[list[Line]]:
    """Lines side by side, from the top down, each band sorted from left to right."""
    band: list[Line] = []
    bottom = -math.inf
    for line in sorted(lines, key=lambda line: (line.top + line.bottom, line.left)):
        middle = (line.top + line.bottom) / 2
        if band and middle > bottom:
            yield sorted(band, key=lambda line: line.left)
            band, bottom = [], -math.inf
        band.append(line)
        bottom = max(bottom, line.top + 0.75 * line.height) if bottom == -math.inf else bottom
    if band:
        yield sorted(band, key=lambda line: line.left)
