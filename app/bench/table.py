"""The figures as a table of plain text. A row that nobody has a figure for is not there."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from app.bench.report import Program, Report, Speeds, Turn

NOTHING = "-"


def table(report: Report) -> str:
    """One column a program, ours first."""
    programs = report.programs
    if not programs:
        return ""
    window = report.setting.window_tokens
    rows = [("", [program.name for program in programs])]
    rows += [(label, cells) for label, cells in _rows(programs, window) if any(cell != NOTHING for cell in cells)]
    first = max(len(label) for label, _ in rows)
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(programs))]
    lines = [
        "  ".join([label.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for label, cells in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def heading(report: Report) -> str:
    """What was measured, in two lines, and the note in a third where there is one."""
    s, machine = report.setting, report.machine
    weights = f"{s.weights_bytes / 2**20:,.0f} MiB of weights, run in {s.dtype} on {s.device}"
    window = f"window of {s.window_tokens:,} tokens ({s.kv_format}, {s.policy})"
    lines = [f"{s.model}: {weights}; {window}", f"{machine.processor}, {machine.cores} cores, {s.threads} threads"]
    return "\n".join([*lines, report.note] if report.note else lines)


def _rows(programs: list[Program], window: int) -> Iterable[tuple[str, list[str]]]:
    yield "from start to ready, s", _cells([program.load_seconds for program in programs])
    measured = [program.speeds for program in programs]
    if (ours := measured[0]) is not None:
        long, short = f"{ours.prompt_tokens:,}", f"{ours.short_prompt_tokens:,}"
        yield f"reads a prompt of {long} tokens, tokens/s", _of(measured, lambda s: s.read_per_second)
        yield f"answers after {short} tokens, tokens/s", _of(measured, lambda s: s.short_answer_per_second)
        yield f"answers after {long} tokens, tokens/s", _of(measured, lambda s: s.answer_per_second)
    for name, chosen in (("within", within), ("past", past)):
        turns = [chosen(program.turns, window) for program in programs]
        yield f"chat {name} its window: first token, ms", _cells([_ms(_firsts(some)) for some in turns])
        yield f"chat {name} its window: each token, ms", _cells([_ms(_tokens(some)) for some in turns])


def _of(measured: list[Speeds | None], figure: Callable[[Speeds], float | None]) -> list[str]:
    return _cells([None if speeds is None else figure(speeds) for speeds in measured])


def _cells(values: list[float | None]) -> list[str]:
    """One decimal below 100."""
    return [NOTHING if value is None else f"{value:,.{0 if value >= 100 else 1}f}" for value in values]


def within(turns: list[Turn], window: int) -> list[Turn]:
    """Turns after which the chat still fits the window, but for the first, which has no chat before it."""
    return [turn for turn in turns[1:] if turn.chat_tokens <= window]


def past(turns: list[Turn], window: int) -> list[Turn]:
    """Turns that began when the chat had outgrown the window."""
    before = [0, *(turn.chat_tokens for turn in turns)]
    return [turn for turn, tokens in zip(turns, before, strict=False) if tokens > window]


def _firsts(turns: list[Turn]) -> list[float]:
    return [turn.first_token_seconds for turn in turns]


def _tokens(turns: list[Turn]) -> list[float]:
    return [turn.token_seconds for turn in turns if turn.token_seconds is not None]


def _ms(seconds: list[float]) -> float | None:
    return 1000 * statistics.median(seconds) if seconds else None
