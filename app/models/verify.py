"""Whether a model's files are there and are the right ones, without hashing 100 MB at every start.

After a full check a stamp beside the files remembers their sizes, times and hashes; while those still agree
the files are taken as checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from app.models.manifest import ModelEntry, ModelFile

STAMP = ".verified.json"
_CHUNK = 1 << 20


class Presence(StrEnum):
    """What is known of a model's files without reading them."""

    ABSENT = "absent"
    UNVERIFIED = "unverified"
    """All there by name and size, but not hashed since they were last written."""
    VERIFIED = "verified"


def presence(entry: ModelEntry, models_folder: Path) -> Presence:
    """Look at names, sizes and the stamp; costs a few stat calls."""
    home = entry.home(models_folder)
    if any(_size(home / file.path) != file.bytes for file in entry.files):
        return Presence.ABSENT
    try:
        stamp = json.loads((home / STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return Presence.UNVERIFIED
    return Presence.VERIFIED if stamp == _facts(entry, home) else Presence.UNVERIFIED


def verify(entry: ModelEntry, models_folder: Path, on_bytes: Callable[[int], None] | None = None) -> str | None:
    """Hash every file. None when all are right (and the stamp is written), else which file is wrong and how.

    `on_bytes` gets the number of bytes hashed so far; what it raises ends the check.
    """
    home = entry.home(models_folder)
    done = 0
    for file in entry.files:
        path = home / file.path
        if not path.is_file():
            return f"{path} is missing"
        digest = hashlib.sha256()
        with path.open("rb") as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if on_bytes is not None:
                    on_bytes(done)
        if digest.hexdigest() != file.sha256:
            return f"{path} is damaged or another file (its sha256 is {digest.hexdigest()[:12]}…)"
    write_stamp(entry, home)
    return None


def write_stamp(entry: ModelEntry, home: Path) -> None:
    """Remember that the files in `home` were just hashed and are right."""
    (home / STAMP).write_text(json.dumps(_facts(entry, home)), "utf-8")


def _facts(entry: ModelEntry, home: Path) -> dict[str, list[int | str]]:
    return {file.path: _fact(home, file) for file in entry.files}


def _fact(home: Path, file: ModelFile) -> list[int | str]:
    stat = (home / file.path).stat()
    return [stat.st_size, stat.st_mtime_ns, file.sha256]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
