"""E-books (EPUB): the chapters in reading order, each with its headings."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from urllib.parse import unquote

from memory.chunking import Layout, Section
from memory.ingest import html, zipped
from memory.ingest.extract import Extract, Format, Job
from memory.types import NeedsPasswordError

_CONTAINER = "META-INF/container.xml"
_RIGHTS = "META-INF/encryption.xml"
_FONTS_ONLY = b"http://www.idpf.org/2008/embedding"
_CHAPTERS = ("application/xhtml+xml", "text/html")


def read(job: Job) -> Extract:
    """An EPUB file. Raises NeedsPasswordError for one whose text is encrypted (DRM)."""
    sections: list[Section] = []
    warnings: list[str] = []
    with zipped.opened(job.path, job.name) as archive:
        names = set(archive.namelist())
        if _RIGHTS in names and _locked(archive.read(_RIGHTS)):
            raise NeedsPasswordError(f"{job.name} is locked to the shop's reader (DRM): no other program can read it.")
        chapters = list(_chapters(archive, job.name))
        for number, chapter in enumerate(chapters):
            job.step("read", number, len(chapters))
            if chapter not in names:
                warnings.append(f"The chapter {chapter} of {job.name} is missing.")
                continue
            soup, title = html.titled(archive.read(chapter))
            sections.append(Section(html.markdown(soup), heading=title))
    return Extract(Format.BOOK, tuple(sections), warnings=tuple(warnings), layout=Layout.MARKDOWN)


def _locked(rights: bytes) -> bool:
    # Obfuscated fonts are listed here as well, and do not concern the text.
    return rights.count(b"EncryptionMethod") > rights.count(_FONTS_ONLY) and _FONTS_ONLY not in rights


def _chapters(archive: zipfile.ZipFile, name: str) -> Iterator[str]:
    """Paths of the chapters in the order of the book's spine."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    container = etree.fromstring(archive.read(_CONTAINER), parser)
    roots = [] if container is None else container.xpath("//*[local-name()='rootfile']/@full-path")
    if not roots:
        raise zipped.damaged(name)
    package = etree.fromstring(archive.read(str(roots[0])), parser)
    if package is None:
        raise zipped.damaged(name)
    folder = posixpath.dirname(str(roots[0]))
    files = {
        item.get("id"): posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        for item in package.xpath("//*[local-name()='manifest']/*[local-name()='item']")
        if item.get("media-type") in _CHAPTERS
    }
    for reference in package.xpath("//*[local-name()='spine']/*[local-name()='itemref']/@idref"):
        if reference in files:
            yield files[reference]
