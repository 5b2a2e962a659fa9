"""Why a text that looks like dropped files names none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from app.drop import parse as parsing
from app.drop.classify import PathKind, Probe, probe

VSCODE_STRIPS = "`$|&>#!^*;<~"
"""Characters that VS Code's terminal deletes from a dropped path."""
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_REMOTE = re.compile(r"['\"]?((sftp|smb|ftp|davs?|mtp|google-drive|ssh)://|file://(?!/|localhost/))", re.IGNORECASE)
_MOST_SHOWN = 80
_LONGEST_NAME = 255


def explain(text: str, environ: Mapping[str, str] | None = None, look: Probe = probe) -> str:
    """One sentence on why `text`, which `classify` did not recognise, names nothing; "" when it is just text.

    Asks the disk about one folder: call it off the event loop.
    """
    environ = os.environ if environ is None else environ
    if len(text) <= parsing.LONGEST_DROP and _REMOTE.match(text.strip()):
        return "That file is on another machine: copy it here first, then drop the copy."
    name = _missing(text, look)
    if name is None:
        return ""
    shown = name if len(name) <= _MOST_SHOWN else "…" + name[1 - _MOST_SHOWN :]
    if _WINDOWS.match(name) and os.name == "posix":
        return f"{shown} is a Windows path: give the path as it is on this machine."
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return f"There is no {shown} here: over ssh a drop names a file of your own machine; copy it over first."
    if environ.get("TERM_PROGRAM") == "vscode":
        return (
            f"There is no {shown}: the VS Code terminal deletes {VSCODE_STRIPS} from a dropped name,"
            " so rename the file or type its path."
        )
    folder = os.path.dirname(os.path.expanduser(name))
    if look(folder) is PathKind.MISSING:
        return f"There is no {shown}: the folder {folder} does not exist."
    return f"There is no file {shown}: it may have been moved or deleted."


def _missing(text: str, look: Probe) -> str | None:
    """The first missing path of a text that is more likely a drop than words: on one line, with a folder."""
    for reading in reversed(parsing.parse(text)):
        if all(_is_likely(name) for name in reading.names):
            return next((name for name in reading.names if look(name) is PathKind.MISSING), None)
    return None


def _is_likely(name: str) -> bool:
    """Not words that happen to begin with a slash: "/help me", "~ 5 %", a pasted stack trace."""
    parts = re.split(r"[\\/]", name.rstrip("\\/"))
    return len(parts) > 2 and all(len(part) <= _LONGEST_NAME for part in parts) and not re.search(r"[\r\n]", name)
