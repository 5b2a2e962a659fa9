"""Can the data folder be written, is it private, and is there room in it?"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from app.doctor.check import Check, Status

NAME = "Data folder"
WANTED_BYTES = 1 << 30
"""Both shipped models take 190 MB, twice that while they are fetched; chats and files need the rest."""
FULL_BYTES = 50 << 20
"""Below this SQLite itself may run out while it writes its journal."""


def check(data: Path) -> Check:
    """Write a file, read the folder's mode, ask for the free space. Creates nothing that stays."""
    existing = next(folder for folder in (data, *data.parents) if folder.exists())
    if not existing.is_dir():
        return Check(NAME, Status.FAILURE, f"{existing} is a file, not a folder", _move())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"aios-chat")
            file.flush()
    except OSError as error:
        return Check(NAME, Status.FAILURE, f"{existing} cannot be written: {error.strerror}", _move())
    free = shutil.disk_usage(existing).free
    detail = f"{data}, {free / 2**30:.1f} GiB free"
    if free < FULL_BYTES:
        return Check(NAME, Status.FAILURE, detail, "Free some space: chats could not be saved.")
    if existing == data:
        mode = stat.S_IMODE(data.stat().st_mode)
        if os.name == "posix" and mode & 0o077:
            fix = f"Make it private: `chmod 700 {data}`."
            return Check(NAME, Status.WARNING, f"{detail}; others may look into it (mode {mode:04o})", fix)
    if free < WANTED_BYTES:
        return Check(NAME, Status.WARNING, detail, "Free some space: models and files may not fit.")
    return Check(NAME, Status.OK, detail if existing == data else f"{detail}; made at the first start")


def _move() -> str:
    return "Correct its permissions, or set AIOS_CHAT_HOME to a folder of yours."
