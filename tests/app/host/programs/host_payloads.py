"""What the test and its children say to each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    greeting: str
    fail: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    greeting: str
    pid: int
    environment: tuple[tuple[str, str], ...]
    stdin: str


@dataclass(frozen=True, slots=True)
class Echo:
    data: object


@dataclass(frozen=True, slots=True)
class Count:
    """Events 0..n-1, then "counted"."""

    n: int


@dataclass(frozen=True, slots=True)
class CountUntilCancelled:
    """Writes what became of it to `path`, so that a closed stream's end can be seen."""

    path: str


@dataclass(frozen=True, slots=True)
class SlowCount:
    """The same in the background lane."""

    path: str


@dataclass(frozen=True, slots=True)
class Crash:
    signal: int


@dataclass(frozen=True, slots=True)
class Leave:
    code: int


@dataclass(frozen=True, slots=True)
class Print:
    text: str


@dataclass(frozen=True, slots=True)
class Refuse:
    sentence: str


@dataclass(frozen=True, slots=True)
class Break:
    text: str


@dataclass(frozen=True, slots=True)
class Unpicklable:
    pass


@dataclass(frozen=True, slots=True)
class Unknown:
    pass


@dataclass(frozen=True, slots=True)
class PushBack:
    data: object


@dataclass(frozen=True, slots=True)
class Hang:
    """Never returns, whatever it is told."""


@dataclass(frozen=True, slots=True)
class StartHelper:
    """Start a program of the child's own; the answer is its process id."""
