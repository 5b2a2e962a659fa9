"""The files of a folder that a person means: not hidden ones, not what tools keep there for themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

NEVER = frozenset({"node_modules", "__pycache__", "site-packages", "__MACOSX", "venv", "bower_components"})
"""Folders of other people's files, by the thousand. Hidden ones (.git, .venv, .cache) are left out with their kind."""
NEVER_FILES = frozenset({"Thumbs.db", "desktop.ini"})


def is_meant(path: Path, folder: Path) -> bool:
    """Whether a file below `folder` is read with it."""
    parts = path.relative_to(folder).parts
    return not any(part.startswith(".") or part in NEVER for part in parts) and path.name not in NEVER_FILES


def files_of(folder: Path) -> Iterator[Path]:
    """Every file that is meant, in order, links to folders not followed. Blocks on the disk."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in NEVER)
        for name in sorted(files):
            path = Path(place, name)
            if is_meant(path, folder) and path.is_file():
                yield path
