"""Looking at processes that may end at any moment."""

from __future__ import annotations

import psutil


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def children_that_run(word: str) -> list[psutil.Process]:
    """Our children, and theirs, with `word` among the words of their command line."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if word in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
    return found
