"""Markdown: cut at headings, lists and code fences; a passage knows the heading above it."""

from __future__ import annotations

from memory.chunking import Layout
from memory.ingest.extract import Extract, Format, Job
from memory.ingest.text import read_as


def read(job: Job) -> Extract:
    """A Markdown file."""
    return read_as(job, Format.MARKDOWN, Layout.MARKDOWN)
