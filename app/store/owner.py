"""Who may do what when several programs use one data folder.

Two locks, both held by the operating system and so gone with the process that held them, however it died: the
owner's (one program recovers and works the outbox), and one for each program that writes answers, by which
another sees whether a streaming answer is still alive.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import BaseFileLock


class Owner:
    """The one program that recovers and works the outbox. Held until `release` or the end of the process."""

    def __init__(self, lock: BaseFileLock) -> None:
        self._lock = lock

    def release(self) -> None:
        """Let another program become the owner."""
        self._lock.release()


def acquire_owner(folder: Path) -> Owner | None:
    """Become the owner of the data folder; None when another program is. Returns at once."""
    lock = _try_lock(folder / "owner.lock")
    return None if lock is None else Owner(lock)


class Writer:
    """A program that streams answers into the store; alive as long as its lock is held."""

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(8)
        self._path = _writer_lock(folder, self.token)
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        lock = _try_lock(self._path)
        if lock is None:  # 64 random bits were drawn twice
            raise RuntimeError(f"writer token {self.token} is taken")
        self._lock = lock

    def close(self) -> None:
        """Stop being a writer; what still streams counts as interrupted."""
        self._lock.release()
        self._path.unlink(missing_ok=True)


def writer_is_alive(folder: Path, token: str) -> bool:
    """Whether the program that wrote with `token` still runs. Clears the lock file of one that does not."""
    path = _writer_lock(folder, token)
    if not path.exists():
        return False
    lock = _try_lock(path)
    if lock is None:
        return True
    lock.release()
    path.unlink(missing_ok=True)
    return False


def _writer_lock(folder: Path, token: str) -> Path:
    return folder / "writers" / f"{token}.lock"


def _try_lock(path: Path) -> BaseFileLock | None:
    # Imported here: 45 ms that a first frame need not wait for.
    from filelock import FileLock, Timeout

    # Not thread-local: a lock taken in one worker thread is given back in another.
    lock = FileLock(path, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock
