"""Notebooks (.ipynb): texts, code and what it printed, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from memory.chunking import Layout, Section
from memory.ingest.encoding import decode
from memory.ingest.extract import Extract, Format, Job
from memory.types import DamagedFileError

_MOST_OUTPUT = 4000
"""Characters kept of one cell's output: the rest is a log."""


def read(job: Job) -> Extract:
    """A Jupyter notebook of any version; a passage's line is its line in the text made from it."""
    job.step("read", 0, 1)
    try:
        book = json.loads(decode(job.path.read_bytes(), job.name))
        cells = book["cells"] if "cells" in book else [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
        language = str(book.get("metadata", {}).get("kernelspec", {}).get("language", ""))
        text = "\n\n".join(part for cell in cells for part in _cell(cell, language) if part.strip())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(f"{job.name} is not a whole notebook: save it again from Jupyter.") from error
    job.step("read", 1, 1)
    return Extract(Format.NOTEBOOK, (Section(text),), layout=Layout.MARKDOWN)


def _cell(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input", "")))
    match cell.get("cell_type"):
        case "code":
            yield f"```{language}\n{source}\n```" if source.strip() else ""
            for output in cell.get("outputs", []):
                printed = _output(output).strip()[:_MOST_OUTPUT]
                yield f"Output:\n```\n{printed}\n```" if printed else ""
        case "heading":
            yield f"{'#' * int(cell.get('level', 1))} {source}"
        case _:
            yield source


def _output(output: dict[str, Any]) -> str:
    if "text" in output:
        return _joined(output["text"])
    if output.get("output_type") in ("error", "pyerr"):
        return f"{output.get('ename', '')}: {output.get('evalue', '')}"
    return _joined(output.get("data", {}).get("text/plain", ""))


def _joined(text: object) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)
