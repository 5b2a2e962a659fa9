"""Will the screen look and work right in this terminal?"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from app.doctor.check import Check, Status

NEEDED_COLUMNS, NEEDED_LINES = 60, 16


@dataclass(frozen=True, slots=True)
class Terminal:
    """What can be known of the terminal without talking to it."""

    environ: Mapping[str, str]
    columns: int
    lines: int
    encoding: str
    is_terminal: bool

    @classmethod
    def here(cls) -> Terminal:
        """The terminal that this process writes to."""
        size = shutil.get_terminal_size()
        return cls(os.environ, size.columns, size.lines, sys.stdout.encoding or "", sys.stdout.isatty())


def check(terminal: Terminal) -> Check:
    """Judge type, colours, encoding, size, and what a multiplexer between may swallow."""
    environ = terminal.environ
    kind = environ.get("TERM", "")
    facts = [f"TERM={kind or 'unset'}", _colours(environ), terminal.encoding or "unknown encoding"]
    facts.append(f"{terminal.columns}x{terminal.lines}" if terminal.is_terminal else "not a terminal")
    troubles: list[tuple[str, str]] = []
    if not terminal.is_terminal:
        troubles.append(("output is not a terminal", "Use the commands, such as `aios-chat ask`, in pipes."))
    if kind in ("", "dumb"):
        troubles.append(("the terminal's type is not known", "Set TERM, for example to xterm-256color."))
    if terminal.encoding.lower().replace("-", "") != "utf8":
        troubles.append(("text is not UTF-8", "Set LANG to a UTF-8 locale, for example C.UTF-8."))
    small = terminal.columns < NEEDED_COLUMNS or terminal.lines < NEEDED_LINES
    if terminal.is_terminal and small:
        troubles.append(("the window is small", f"Enlarge it to {NEEDED_COLUMNS}x{NEEDED_LINES} or more."))
    if "TMUX" in environ:
        facts.append("inside tmux")
        if kind.startswith("xterm"):
            fix = "In tmux.conf: set -g default-terminal tmux-256color."
            troubles.append(("tmux says that it is xterm", fix))
    elif kind.startswith("screen") or "STY" in environ:
        facts.append("inside screen")
    if "NO_COLOR" in environ:
        facts.append("NO_COLOR is set: the screen is drawn without colours")
    detail = "; ".join([", ".join(facts), *(trouble for trouble, _ in troubles)])
    status = Status.WARNING if troubles else Status.OK
    return Check("Terminal", status, detail, " ".join(fix for _, fix in troubles))


def _colours(environ: Mapping[str, str]) -> str:
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "16 million colours"
    return "256 colours" if "256color" in environ.get("TERM", "") else "16 colours"
