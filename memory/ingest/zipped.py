"""The ZIP files that documents are made of, opened with limits: a small file must not unpack to a large one."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.types import DamagedFileError, NeedsPasswordError, UnsupportedFileError

MOST_BYTES = 400 * 2**20
"""Unpacked, all members together."""
_MOST_MEMBERS = 20_000
_MOST_RATIO = 250
"""Deflate reaches 1,030 with zeros; the XML of real office files reaches about 60."""
_RATIO_COUNTS_FROM = 8 * 2**20


@contextmanager
def opened(path: Path, name: str) -> Iterator[zipfile.ZipFile]:
    """The archive at `path`. Raises DamagedFileError, NeedsPasswordError, or UnsupportedFileError where it would
    unpack to far more than it is; damage met while it is read is a DamagedFileError as well."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check(archive.infolist(), name)
            yield archive
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, zipfile.zlib.error, KeyError) as error:  # type: ignore[attr-defined]
        raise damaged(name) from error


def damaged(name: str) -> DamagedFileError:
    """The sentence for a file that its own program would not open either."""
    return DamagedFileError(f"{name} is damaged or cut off: save it again from its program.")


def _check(members: list[zipfile.ZipInfo], name: str) -> None:
    if any(member.flag_bits & 1 for member in members):
        raise NeedsPasswordError(f"{name} is locked by a password inside: unlock it in its program and save it anew.")
    total = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members) or 1
    if (
        total > MOST_BYTES
        or len(members) > _MOST_MEMBERS
        or (total > _RATIO_COUNTS_FROM and total > _MOST_RATIO * packed)
    ):
        raise UnsupportedFileError(
            f"{name} would unpack to {total / 2**20:.0f} MB in {len(members)} parts, which is no honest document: "
            "it is left unread."
        )
