"""Text files in any encoding."""

from __future__ import annotations

import re

from memory.chunking import Layout, Section
from memory.ingest.encoding import decode
from memory.ingest.extract import Extract, Format, Job
from memory.types import NoTextError

_PAGE_BREAKS = re.compile(r"^[\f\v]+|[\f\v]+$", re.MULTILINE)
_INSIDE = dict.fromkeys(map(ord, "\f\v\x85\u2028\u2029"), " ")


def read_as(job: Job, format_: Format, layout: Layout = Layout.PLAIN) -> Extract:
    """One section with its line numbers. Raises IngestError for binary or blank files."""
    job.step("read", 0, 1)
    text = _numbered(decode(job.path.read_bytes(), job.name))
    if not text.strip():
        raise NoTextError(f"{job.name} holds nothing but white space: there is nothing to read in it.")
    job.step("read", 1, 1)
    return Extract(format_, (Section(text, line=1),), layout=layout)


def _numbered(text: str) -> str:
    """`text` whose lines are an editor's: a form feed and its like are no end of a line there."""
    return _PAGE_BREAKS.sub("", text).translate(_INSIDE)


def read(job: Job) -> Extract:
    """A plain text file."""
    return read_as(job, Format.TEXT)
