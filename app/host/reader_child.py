"""The reader's child process: `python -m app.host.reader_child`. Takes files apart where a hostile one can do no harm:
it holds nothing but the file, may take so much memory and no more, and is killed when it falls silent."""

from __future__ import annotations

import os
import resource

from app.host.apart import ReadRequest
from app.host.serve import Channel, Context, serve
from memory.ingest.extract import Extract, Job
from memory.ingest.readers import read_file
from memory.types import RecallError

NICENESS = 10
MOST_MEMORY = 6 << 30
"""Bytes of address space. Tesseract's and RapidOCR's models, and a page at 300 dpi, take 2 GiB together."""


def read(request: ReadRequest, context: Context) -> Extract:
    """The text of one file."""
    return read_file(
        Job(
            request.path,
            request.name,
            request.ocr_languages,
            context.event,
            context.cancelled,
            request.password,
            request.pages,
            request.thumbnail,
        )
    )


if __name__ == "__main__":
    os.nice(NICENESS)
    os.umask(0o077)  # Tesseract's pictures and texts are nobody else's to read
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve({ReadRequest: read}, expected=(RecallError,), threads=1, channel=Channel.from_arguments())
