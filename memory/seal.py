"""Whether the files of a derived index are as they were left, known before anything reads them.

Chroma 1.5.9 ends the whole process (SIGSEGV) over an index file of other bytes than it wrote. So a checksum of every
file is written down when the index is closed, and a mark stands while it is being opened: whoever finds the mark knows
that the last one who tried did not survive it.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

_PART = 1 << 20


class Seal:
    """The seal of one folder; its two files stand beside the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sums = folder.with_name(f"{folder.name}.seal")
        self._trial = folder.with_name(f"{folder.name}.trial")

    def is_broken(self) -> bool:
        """Whether a file is missing or other than it was left, or the last attempt to open them never ended. After a
        crash there are no checksums, and the files may be whole."""
        if self._trial.exists():
            return True
        try:
            return bool(json.loads(self._sums.read_text(encoding="utf-8")) != _checksums(self._folder))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True

    def begin(self) -> None:
        """The folder is being opened: it will change."""
        self._trial.touch()
        self._sums.unlink(missing_ok=True)

    def opened(self) -> None:
        """It could be opened."""
        self._trial.unlink(missing_ok=True)

    def close(self) -> None:
        """It is closed, and its files stay as they are."""
        self._sums.write_text(json.dumps(_checksums(self._folder)), encoding="utf-8")


def _checksums(folder: Path) -> dict[str, int]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): _checksum(file) for file in files}


def _checksum(file: Path) -> int:
    value = 0
    with file.open("rb") as opened:
        while part := opened.read(_PART):
            value = zlib.crc32(part, value)
    return value
