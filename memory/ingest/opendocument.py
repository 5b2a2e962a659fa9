"""OpenDocument texts and slides (ODT, ODP): headings, paragraphs, lists, tables and notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memory.chunking import Layout, Section
from memory.ingest import zipped
from memory.ingest.extract import Extract, Format, Job
from memory.types import NeedsPasswordError

if TYPE_CHECKING:
    from lxml.etree import _Element

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_SKIPPED = frozenset({f"{_TEXT}tracked-changes", f"{_TEXT}sequence-decls", f"{_TEXT}table-of-content"})
_MOST_NESTED = 200
_MOST_REPEATED = 1000


def read(job: Job) -> Extract:
    """An ODT or ODP file; each slide of an ODP is a page."""
    from lxml import etree

    job.step("read", 0, 1)
    with zipped.opened(job.path, job.name) as archive:
        content = archive.read("content.xml")
        if b"encryption-data" in (archive.read("META-INF/manifest.xml") if _has_manifest(archive) else b""):
            raise NeedsPasswordError(f"{job.name} is locked by a password: unlock it in its program and save it anew.")
    try:
        root = etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise zipped.damaged(job.name) from error
    slides = list(root.iter(f"{_DRAW}page"))
    if slides:
        sections = tuple(Section(_all(slide), page=number) for number, slide in enumerate(slides, start=1))
        extract = Extract(Format.SLIDES, sections, len(slides), layout=Layout.MARKDOWN)
    else:
        bodies = list(root.iter(f"{_OFFICE}text"))
        extract = Extract(Format.WORD, tuple(Section(_all(body)) for body in bodies), layout=Layout.MARKDOWN)
    job.step("read", 1, 1)
    return extract


def _has_manifest(archive: object) -> bool:
    return "META-INF/manifest.xml" in getattr(archive, "NameToInfo", {})


def _all(element: _Element) -> str:
    return "\n\n".join(_blocks(element, 0))


def _blocks(element: _Element, depth: int) -> Iterator[str]:
    for child in element:
        if not isinstance(child.tag, str) or child.tag in _SKIPPED or depth > _MOST_NESTED:
            continue
        if child.tag == f"{_TEXT}h":
            level = child.get(f"{_TEXT}outline-level", "1")
            words = _words(child)
            if words:
                yield f"{'#' * min(int(level) if level.isdecimal() else 1, 6)} {words}"
        elif child.tag == f"{_TEXT}p":
            words = _words(child)
            if words:
                yield words
            for frame in child.iter(f"{_DRAW}text-box"):
                yield from _blocks(frame, depth + 1)
        elif child.tag == f"{_TEXT}list":
            yield "\n".join(_items(child, 0))
        elif child.tag == f"{_TABLE}table":
            yield _table(child)
        else:
            yield from _blocks(child, depth + 1)


def _items(element: _Element, level: int) -> Iterator[str]:
    if level > _MOST_NESTED:
        return
    for item in element:
        if not isinstance(item.tag, str):
            continue
        for part in item:
            if part.tag == f"{_TEXT}list":
                yield from _items(part, level + 1)
            elif part.tag in (f"{_TEXT}p", f"{_TEXT}h") and (words := _words(part)):
                yield f"{'  ' * level}- {words}"


def _table(table: _Element) -> str:
    rows: list[list[str]] = []
    for row in table.iter(f"{_TABLE}table-row"):
        cells: list[str] = []
        for cell in row:
            if cell.tag not in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                continue
            words = " ".join(_words(part) for part in cell.iter(f"{_TEXT}p", f"{_TEXT}h"))
            count = cell.get(f"{_TABLE}number-columns-repeated", "1")
            repeated = int(count) if count.isdecimal() else 1
            cells += [words.replace("|", "\\|")] * (min(repeated, _MOST_REPEATED) if words else 1)
        if any(cells):
            rows.append(cells)
    if not rows:
        return ""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])


def _words(element: _Element) -> str:
    """The text of a paragraph, with its tabs, spaces and line ends; text boxes are blocks of their own."""
    parts: list[str] = []
    stack: list[tuple[_Element, bool]] = [(element, False)]
    while stack:
        node, done = stack.pop()
        if done:
            parts.append(node.tail or "")
            continue
        if node is not element:
            stack.append((node, True))
        if not isinstance(node.tag, str) or node.tag == f"{_DRAW}text-box":
            continue
        if node.tag in (f"{_TEXT}tab", f"{_TEXT}s", f"{_TEXT}line-break"):
            parts.append(" ")
        parts.append(node.text or "")
        stack += [(child, False) for child in reversed(node)]
    return " ".join("".join(parts).split())
