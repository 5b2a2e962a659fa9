"""What was measured: the JSON that is saved, field by field."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured. `cores` are those that the process may use."""

    processor: str
    cores: int
    system: str
    python: str

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(_processor(), cores, platform.platform(), platform.python_version())


@dataclass(frozen=True, slots=True)
class Setting:
    """What was measured: a model held in `weights_bytes` and run in `dtype` on `device`, a window of `window_tokens`, a
    chat of `turns` turns."""

    model: str
    weights: str
    weights_bytes: int
    device: str
    dtype: str
    threads: int
    window_tokens: int
    page_size: int
    kv_format: str
    policy: str
    turns: int


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second in a new chat, medians: reading a prompt of `prompt_tokens`, and answering after it and after a
    short one. None where the model's answers ended too soon to be timed."""

    prompt_tokens: int
    read_per_second: float
    answer_per_second: float | None
    short_prompt_tokens: int
    short_answer_per_second: float | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the growing chat, which then has `chat_tokens`: `read_tokens` had to be read for it. `token_seconds`
    is for each token after the first; None where the answer had too few."""

    number: int
    chat_tokens: int
    read_tokens: int
    first_token_seconds: float
    token_seconds: float | None


@dataclass(slots=True)
class Program:
    """One program's figures. `load_seconds` is from its start until it answers."""

    name: str
    version: str
    load_seconds: float
    speeds: Speeds | None = None
    turns: list[Turn] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A program that was not measured, or not to the end, and why."""

    name: str
    why: str


@dataclass(slots=True)
class Report:
    """All of it; `complete` is False when it was interrupted. The first program is ours. `note` is a sentence that has
    to stand beside the figures, "" where there is none."""

    aios_chat: str
    time: str
    machine: Machine
    setting: Setting
    programs: list[Program] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    complete: bool = False
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As plain values, to be saved."""
        return asdict(self)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
