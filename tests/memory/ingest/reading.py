"""Short ways to read a file in a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.ingest.extract import Extract, Job
from memory.ingest.readers import read_file
from memory.types import IngestError


def read(path: Path, name: str | None = None, languages: str = "eng") -> Extract:
    return read_file(Job(path, name or path.name, languages, lambda progress: None, lambda: False))


def whole(extract: Extract) -> str:
    return "\n\n".join(section.text for section in extract.sections)


def refusal(path: Path, kind: type[IngestError], name: str | None = None) -> str:
    """The one sentence or two with which `path` is refused."""
    with pytest.raises(IngestError) as caught:
        read(path, name)
    assert type(caught.value) is kind
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert (name or path.name) in sentence
    return sentence
