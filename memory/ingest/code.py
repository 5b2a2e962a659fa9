"""Source code: text whose blank lines separate the ideas, with line numbers."""

from __future__ import annotations

from memory.chunking import Layout
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.text import read_as


def read(job: Job) -> Extract:
    """A source file, a configuration file or a table of values."""
    return read_as(job, Format.CODE, Layout.PLAIN)
