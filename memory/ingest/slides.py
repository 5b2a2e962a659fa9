"""Slides (PPTX): each slide is a page with its title, text, tables, charts, notes and comments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from memory.chunking import Layout, Section
from memory.ingest import zipped
from memory.ingest.extract import Extract, Format, Job

_MOST_NESTED = 20
_DRAWN_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"


def read(job: Job) -> Extract:
    """A PPTX file. A slide that cannot be read costs itself only."""
    from pptx import Presentation

    with zipped.opened(job.path, job.name):
        pass
    try:
        slides = list(Presentation(str(job.path)).slides)
    except Exception as error:  # python-pptx stumbles over a broken part in many ways
        raise zipped.damaged(job.name) from error
    sections: list[Section] = []
    warnings: list[str] = []
    for number, slide in enumerate(slides, start=1):
        job.step("read", number - 1, len(slides))
        try:
            text = "\n\n".join(part for part in _slide(slide) if part.strip())
        except Exception as error:
            warnings.append(f"Slide {number} of {job.name} is damaged and was not read ({type(error).__name__}).")
            continue
        sections.append(Section(text, page=number))
    job.step("read", len(slides), len(slides))
    return Extract(Format.SLIDES, tuple(sections), len(slides), tuple(warnings), Layout.MARKDOWN)


def _slide(slide: Any) -> Iterator[str]:
    title = slide.shapes.title
    if title is not None and title.has_text_frame and title.text_frame.text.strip():
        yield f"# {' '.join(title.text_frame.text.split())}"
    for shape in slide.shapes:
        if title is None or shape.shape_id != title.shape_id:
            yield from _shape(shape, 0)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text.strip()
        yield f"Notes: {notes}" if notes else ""
    for relation in slide.part.rels.values():
        if relation.reltype.endswith("/comments") and not relation.is_external:
            yield from _comments(relation.target_part.blob)


def _shape(shape: Any, depth: int) -> Iterator[str]:
    if depth < _MOST_NESTED and hasattr(shape, "shapes"):
        for inner in shape.shapes:
            yield from _shape(inner, depth + 1)
    elif getattr(shape, "has_table", False):
        yield _table([[cell.text for cell in row.cells] for row in shape.table.rows])
    elif getattr(shape, "has_chart", False):
        with suppress(ValueError, KeyError):  # a kind of chart that python-pptx does not know
            yield from _chart(shape.chart)
    elif getattr(shape, "has_text_frame", False):
        yield _paragraphs(shape.text_frame)


def _paragraphs(frame: Any) -> str:
    paragraphs = [(paragraph.level, " ".join(paragraph.text.split())) for paragraph in frame.paragraphs]
    lines = [(level, text) for level, text in paragraphs if text]
    if len(lines) < 2:
        return lines[0][1] if lines else ""
    return "\n".join(f"{'  ' * level}- {text}" for level, text in lines)


def _table(rows: list[list[str]]) -> str:
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    if not cells:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], f"|{' --- |' * len(cells[0])}", *lines[1:]])


def _chart(chart: Any) -> Iterator[str]:
    if chart.has_title and chart.chart_title.has_text_frame:
        yield chart.chart_title.text_frame.text
    for plot in chart.plots:
        categories = [str(category) for category in plot.categories]
        for series in plot.series:
            values = [f"{value:g}" if value is not None else "" for value in series.values]
            names = categories or [str(number) for number in range(1, len(values) + 1)]
            pairs = "; ".join(f"{name}: {value}" for name, value in zip(names, values, strict=False))
            yield f"{series.name or 'Series'}: {pairs}"


def _comments(part: bytes) -> Iterator[str]:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    for element in etree.fromstring(part, parser).iter():
        name = etree.QName(element).localname if isinstance(element.tag, str) else ""
        if (name == "text" or element.tag == _DRAWN_TEXT) and element.text:
            yield f"Comment: {' '.join(element.text.split())}"
