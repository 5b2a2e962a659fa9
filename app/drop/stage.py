"""Copies a dropped file's bytes at once: what was dropped may be gone in a second, as screenshots are."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.errors import PersonError
from app.paths import why
from app.store.types import Attachment

LARGEST_FILE = 1 << 30
"""Bytes. Larger files are no reading matter, and two copies of them fill a disk."""
_CHUNK = 1 << 20
_LONGEST_NAME = 255
"""Bytes of a name on every common disk."""
_LONGEST_SUFFIX = 32
_INCOMING = ".incoming-"
_CONTENT = re.compile(r"[0-9a-f]{64}")
_UNFIT = re.compile(r"[\x00-\x1f\x7f/\\\ud800-\udfff]")


class DropError(PersonError):
    """One sentence for the person: which file cannot be taken, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged copy: its attachment, the SHA-256 of its bytes in hex, and its size in bytes."""

    attachment: Attachment
    sha256: str
    size: int


def stage(source: Path, files: Path) -> Staged:
    """Copy `source` into `files`/<sha256>/<name>; the same bytes take their place on the disk once.

    The copy is complete or not there. Raises DropError for a missing, empty, too large or unreadable file,
    for a folder, and for a full disk. Blocks: call it off the event loop.
    """
    source = Path(os.path.abspath(source))
    name = _fit(source.name)
    temporary: Path | None = None
    try:
        with _open(source) as original:
            temporary, sha256, size = _copy(original, source, files)
        place = files / sha256
        place.mkdir(mode=0o700, exist_ok=True)
        _put(temporary, place, name)
    except OSError as error:
        raise DropError(f"{source.name} cannot be copied to {files}: {why(error)}.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    origin = os.fsencode(source).decode("utf-8", "backslashreplace")
    return Staged(Attachment(name=name, origin=origin, staged=str(place / name)), sha256, size)


def unstage(staged: str, files: Path) -> bool:
    """Remove a staged copy, and its folder with the last one. False where there is none of it in `files`."""
    path = Path(staged)
    if path.parent.parent != files or not _CONTENT.fullmatch(path.parent.name) or path.name == "..":
        return False
    try:
        path.unlink()
    except OSError:
        return False
    if not any(path.parent.iterdir()):
        path.parent.rmdir()
    return True


def unstage_content(content: str, files: Path) -> None:
    """Remove every copy of the file with this SHA-256, whatever names it was given."""
    if _CONTENT.fullmatch(content):
        shutil.rmtree(files / content, ignore_errors=True)


def sweep(files: Path, wanted: Collection[str], before: float) -> None:
    """Remove what lies in `files` since before a time (Unix seconds) and nobody wants: copies of a file whose SHA-256
    is not among `wanted`, and copies that were begun and never finished. Younger ones may be on their way."""
    for place in files.iterdir():
        with suppress(OSError):
            if place.stat().st_mtime >= before:
                continue
            if _CONTENT.fullmatch(place.name) and place.name not in wanted:
                shutil.rmtree(place, ignore_errors=True)
            elif place.name.startswith(_INCOMING):
                place.unlink()


def _open(source: Path) -> BinaryIO:
    try:
        # Not blocking: opening a pipe would wait for its other end.
        descriptor = os.open(source, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            _check(source, os.fstat(descriptor))
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except FileNotFoundError:
        raise DropError(f"There is no file {source}: it may have been moved or deleted.") from None
    except IsADirectoryError:
        raise _folder(source) from None
    except PermissionError:
        raise DropError(f"{source} cannot be read: you may not read it; change its permissions.") from None
    except (OSError, ValueError) as error:
        reason = why(error) if isinstance(error, OSError) else str(error)
        raise DropError(f"{source} cannot be read: {reason}.") from error


def _check(source: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise _folder(source)
    if not stat.S_ISREG(found.st_mode):
        raise DropError(f"{source} is a device or a pipe, not a file: save what it holds to a file first.")
    if found.st_size > LARGEST_FILE:
        size = f"{found.st_size / (1 << 30):.1f} GiB"
        raise DropError(f"{source.name} has {size}, more than {LARGEST_FILE >> 30} GiB: take a part of it.")


def _folder(source: Path) -> DropError:
    return DropError(f"{source} is a folder: drop the files in it instead.")


def _copy(original: BinaryIO, source: Path, files: Path) -> tuple[Path, str, int]:
    """A synced temporary copy in `files`, the SHA-256 of its bytes and their number."""
    descriptor, temporary = tempfile.mkstemp(prefix=_INCOMING, dir=files)
    digest = hashlib.sha256()
    size = 0
    try:
        with os.fdopen(descriptor, "wb") as copy:
            while chunk := _read(original, source):
                size += len(chunk)
                digest.update(chunk)
                copy.write(chunk)
            if size == 0:
                raise DropError(f"{source.name} is empty: there is nothing in it to read.")
            copy.flush()
            os.fsync(copy.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return Path(temporary), digest.hexdigest(), size


def _read(original: BinaryIO, source: Path) -> bytes:
    # Apart from the writing: the sentence must say which of the two disks failed.
    try:
        return original.read(_CHUNK)
    except OSError as error:
        raise DropError(f"{source} cannot be read: {why(error)}.") from error


def _put(temporary: Path, place: Path, name: str) -> None:
    """Give the copy its name; where the same bytes have another name already, link that one instead."""
    target = place / name
    if target.exists():
        return
    for known in place.iterdir():
        try:
            os.link(known, target)
        except FileExistsError:
            return
        except OSError as error:
            # A disk without links (FAT, some network shares) keeps a second copy.
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOENT):
                raise
            break
        return
    os.replace(temporary, target)


def _fit(name: str) -> str:
    """`name` as any disk and any screen can hold it: no control characters, valid UTF-8, 255 bytes."""
    fit = _UNFIT.sub("_", name)
    if len(fit.encode()) <= _LONGEST_NAME:
        return fit
    suffix = Path(fit).suffix.encode()[:_LONGEST_SUFFIX]
    return (fit.encode()[: _LONGEST_NAME - len(suffix)] + suffix).decode("utf-8", "ignore")
