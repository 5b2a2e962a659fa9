"""Types of option values: what is allowed, in words, and how a raw value from a file or a flag becomes one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from app.models.kv_format import KvFormat
from app.policy import Policy


class Switch(StrEnum):
    """What an option that is on or off says."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of value: what is allowed, in words, and how a raw value becomes one (else ValueError)."""

    allowed: str
    read: Callable[[object], object]


def _text(raw: object) -> object:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError
    return raw


def matching(pattern: str, allowed: str) -> Kind:
    """Texts that match a pattern as a whole."""

    def read(raw: object) -> object:
        if not isinstance(raw, str) or not re.fullmatch(pattern, raw):
            raise ValueError
        return raw

    return Kind(allowed, read)


def whole(low: int, high: int | None = None) -> Kind:
    """Whole numbers within bounds."""

    def read(raw: object) -> object:
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            raise ValueError
        value = int(raw)
        if value < low or (high is not None and value > high):
            raise ValueError
        return value

    return Kind(
        f"a whole number from {low} to {high}" if high is not None else f"a whole number of at least {low}",
        read,
    )


def number(low: float, high: float) -> Kind:
    """Numbers within bounds."""

    def read(raw: object) -> object:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ValueError
        value = float(raw)
        if math.isnan(value) or not low <= value <= high:
            raise ValueError
        return value

    return Kind(f"a number from {low:g} to {high:g}", read)


def one_of(values: tuple[int, ...]) -> Kind:
    """Some whole numbers and no others."""

    def read(raw: object) -> object:
        if isinstance(raw, bool) or not isinstance(raw, int | str) or int(raw) not in values:
            raise ValueError
        return int(raw)

    return Kind("one of " + ", ".join(map(str, values)), read)


def member(of: type[StrEnum]) -> Kind:
    """The values of an enumeration."""
    return Kind("one of " + ", ".join(of), lambda raw: of(str(raw).lower()))


def _switch(raw: object) -> object:
    if isinstance(raw, bool):
        return Switch.ON if raw else Switch.OFF
    return Switch(str(raw).lower())


def _texts(raw: object) -> object:
    texts = [raw] if isinstance(raw, str) else raw
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError
    return tuple(texts)


TEXT = Kind("a text that is not empty", _text)
TEXTS = Kind("a text that is not empty, or a list of such texts", _texts)
WEB_SEARCH = matching(r"off|duckduckgo|https?://[^\s/]\S*", "off, duckduckgo or the address of a SearXNG server")
SWITCH = Kind("on or off", _switch)
KV_FORMAT = member(KvFormat)
POLICY = member(Policy)
