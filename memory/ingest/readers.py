"""The table from kind of file to reader, and the one door to all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from memory.chunking import Section
from memory.ingest import (
    code,
    epub,
    image,
    locked,
    mail,
    markdown,
    notebook,
    opendocument,
    pdf,
    slides,
    table,
    text,
    webpage,
    word,
)
from memory.ingest.clean import clean
from memory.ingest.extract import Extract, Job, Reader
from memory.ingest.reading import OcrError
from memory.ingest.sniff import Kind, check, kind_of
from memory.types import DamagedFileError, IngestError, NoTextError, UnsupportedFileError

_log = logging.getLogger(__name__)

_BETWEEN = 2
"""Characters that stand for the gap between two sections of one file's text."""


def read_file(job: Job) -> Extract:
    """The text of any file that can be read. Raises IngestError, one sentence, for any other."""
    check(job.path, job.name)
    try:
        extract = READERS[kind_of(job.path, job.name)](job)
    except OcrError as error:
        raise UnsupportedFileError(f"{job.name} was not read. {error}") from error
    except IngestError:
        raise
    except MemoryError as error:
        raise UnsupportedFileError(f"{job.name} needs more memory than a file may take: split it.") from error
    except OSError as error:
        raise IngestError(f"{job.name} cannot be read ({error.strerror or error}): check its permissions.") from error
    except Exception as error:  # parsers meet a broken or hostile file with errors of every kind
        _log.warning("a reader stumbled over %s", job.path, exc_info=True)
        raise DamagedFileError(f"{job.name} is damaged ({type(error).__name__}): save it again.") from error
    sections = tuple(_placed(extract.sections))
    if not sections and not extract.left and not job.pages:
        raise NoTextError(" ".join((f"{job.name} has no text to read.", *extract.warnings[:1])))
    return replace(extract, sections=sections)


def _mail(job: Job) -> Extract:
    return mail.read(job, read_file)


def _locked(job: Job) -> Extract:
    return locked.read(job, read_file)


READERS: dict[Kind, Reader] = {
    Kind.PDF: pdf.read,
    Kind.PICTURE: image.read,
    Kind.DOCX: word.read,
    Kind.PPTX: slides.read,
    Kind.LOCKED_OFFICE: _locked,
    Kind.WORKBOOK: table.read_workbook,
    Kind.CSV: table.read_csv,
    Kind.OPENDOCUMENT: opendocument.read,
    Kind.EPUB: epub.read,
    Kind.HTML: webpage.read,
    Kind.MAIL: _mail,
    Kind.NOTEBOOK: notebook.read,
    Kind.MARKDOWN: markdown.read,
    Kind.CODE: code.read,
    Kind.TEXT: text.read,
}


def _placed(sections: tuple[Section, ...]) -> Iterator[Section]:
    """Sections that say something, without what cannot be seen, each at its offset in the file's text."""
    after = 0
    for section in sections:
        seen = clean(section.text)
        start = section.start or (after if section.page is None else 0)
        if section.page is None:
            after = start + len(seen) + _BETWEEN
        if seen.strip():
            yield replace(section, text=seen, heading=" ".join(clean(section.heading).split()), start=start)
