"""Where the files of aios-chat live, and how a file is written without ever being half written."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from app.errors import PersonError

APP_NAME = "aios-chat"
HOME_VARIABLE = "AIOS_CHAT_HOME"
PRIVATE_FOLDER = 0o700


class PathsError(PersonError):
    """One sentence for the person: which folder or file cannot be used, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Every place on disk that aios-chat uses. Nothing is created before `create`."""

    data: Path
    config_file: Path

    @classmethod
    def default(cls, environ: Mapping[str, str] | None = None) -> Paths:
        """The folders of this user, or everything below AIOS_CHAT_HOME where that is set.

        Raises PathsError when AIOS_CHAT_HOME is not an absolute path (or one starting with ~).
        """
        home = (os.environ if environ is None else environ).get(HOME_VARIABLE, "")
        if not home:
            config = Path(platformdirs.user_config_dir(APP_NAME, appauthor=False))
            return cls(Path(platformdirs.user_data_dir(APP_NAME, appauthor=False)), config / "settings.toml")
        folder = Path(os.path.expanduser(home))
        if not folder.is_absolute():
            raise PathsError(f"{HOME_VARIABLE} is {home!r}: set it to an absolute path.")
        return cls(folder, folder / "settings.toml")

    @property
    def chats_db(self) -> Path:
        """The message tree, favourites, journal and outbox (SQLite)."""
        return self.data / "chats.db"

    @property
    def memory(self) -> Path:
        """The memory's own folder: documents' text, Chroma, the lexical index."""
        return self.data / "memory"

    @property
    def models(self) -> Path:
        """Fetched models."""
        return self.data / "models"

    @property
    def files(self) -> Path:
        """Staged copies of dropped files, one folder per content."""
        return self.data / "files"

    @property
    def bench(self) -> Path:
        """What `aios-chat bench` measured."""
        return self.data / "bench"

    @property
    def logs(self) -> Path:
        """Log files."""
        return self.data / "logs"

    def create(self) -> Paths:
        """Make the folders that are missing, readable by this user only (0700), and return self.

        Raises PathsError when one cannot be made or written.
        """
        own = (self.data, self.memory, self.models, self.files, self.bench, self.logs)
        for folder in (*own, self.config_file.parent):
            _make_private(folder)
        return self


def write_atomically(path: Path, data: bytes | str) -> None:
    """Replace the file at `path` by `data` (text as UTF-8); a reader, or a crash, sees the old or the new.

    The bytes go to a temporary file in the same folder, are synced, and take the name in one step. Only this
    user may read the file. Raises PathsError when the folder is missing, read-only or full.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        raise PathsError(f"{path} cannot be written: {why(error)}.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raises PathsError when no file can be written at `path`: before long work whose result goes there."""
    if path.is_dir():
        raise PathsError(f"{path} is a folder: give the path of a file.")
    if not path.parent.is_dir():
        raise PathsError(f"{path} cannot be written: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PathsError(f"{path} cannot be written: change the permissions of its folder, or give another path.")


def why(error: OSError) -> str:
    """The reason of a failed file operation in words, with what to do where there is something to do."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full; free some space and try again"
        case errno.EROFS:
            return f"the disk is read-only; set {HOME_VARIABLE} to a folder that can be written"
        case errno.EACCES | errno.EPERM:
            return "permission denied"
        case errno.ENOENT:
            return "no such file or folder"
        case errno.ENOTDIR | errno.EEXIST:
            return "a part of the path is a file, not a folder"
        case errno.ENAMETOOLONG:
            return "the name is too long for this disk"
        case _:
            return (error.strerror or str(error)).lower()


def _make_private(folder: Path) -> None:
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise PathsError(f"The folder {folder} cannot be made: {why(error)}.") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PathsError(
            f"The folder {folder} cannot be written: change its permissions, or set {HOME_VARIABLE} to another folder."
        )


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power loss (where the system can sync a folder)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
