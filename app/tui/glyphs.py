"""The few signs drawn on the screen, with a plain ASCII set for terminals that cannot show them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs."""

    star: str
    quote: str
    dot: str
    down: str
    file: str
    done: str
    failed: str
    ellipsis: str
    sinks: str
    visible: str
    free: str


UNICODE = Glyphs(
    star="★",
    quote="▎",
    dot="·",
    down="↓",
    file="▪",
    done="✓",
    failed="✗",
    ellipsis="…",
    sinks="▓",
    visible="█",
    free="░",
)
ASCII = Glyphs(
    star="*",
    quote="|",
    dot="-",
    down="v",
    file="+",
    done="ok",
    failed="failed",
    ellipsis="...",
    sinks="#",
    visible="=",
    free=".",
)


def choose(encoding: str | None, term: str) -> Glyphs:
    """The set for an output encoding and a TERM; the Linux console has UTF-8 but not the signs."""
    if term == "linux" or encoding is None or "utf" not in encoding.lower():
        return ASCII
    return UNICODE


GLYPHS = choose(getattr(sys.__stdout__, "encoding", None), os.environ.get("TERM", ""))
"""This terminal's set."""
