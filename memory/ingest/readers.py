"""The table from kind of file to reader, and the one door to all of them."""

from __future__ import annotations

from memory.ingest import code, image, markdown, pdf, text
from memory.ingest.extract import Extract, Format, Job, Reader
from memory.ingest.ocr import OcrError
from memory.ingest.sniff import check, format_of
from memory.types import IngestError

READERS: dict[Format, Reader] = {
    Format.PDF: pdf.read,
    Format.IMAGE: image.read,
    Format.MARKDOWN: markdown.read,
    Format.CODE: code.read,
    Format.TEXT: text.read,
}


def read_file(job: Job) -> Extract:
    """The text of any file that can be read. Raises IngestError, one sentence, for any other."""
    check(job.path, job.name)
    try:
        return READERS[format_of(job.path, job.name)](job)
    except OcrError as error:
        raise IngestError(f"{job.name} was not read. {error}") from error
