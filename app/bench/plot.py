"""The growing chat as an SVG picture: time to the first token and time per token, each over the chat's length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from app.bench.report import Program, Report, Turn

WIDTH, HEIGHT = 760, 640
_LEFT, _RIGHT, _PANEL = 80, 20, 220
_TOPS = (70, 360)
_COLOURS = ("#1b6ac9", "#c9571b", "#4b8f29", "#7a3fb0")
_AXIS, _GRID = "#555555", "#dddddd"


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: `value` of each turn in ms, where it has one."""

    title: str
    top: int
    value: Callable[[Turn], float | None]


def _first_ms(turn: Turn) -> float | None:
    return 1000 * turn.first_token_seconds


def _token_ms(turn: Turn) -> float | None:
    return None if turn.token_seconds is None else 1000 * turn.token_seconds


PANELS = (
    Panel("Time to the first token of the answer, ms", _TOPS[0], _first_ms),
    Panel("Time for each token after it, ms", _TOPS[1], _token_ms),
)


def plot(report: Report) -> str:
    """The picture; the same for the same figures. Values stand on logarithmic axes."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(_LEFT, 20, f"A growing chat: {report.setting.model}, window of {report.setting.window_tokens:,} tokens"),
        *_legend(report.programs),
    ]
    longest = max((t.chat_tokens for p in report.programs for t in p.turns), default=0)
    for panel in PANELS:
        points = [_points(program, panel) for program in report.programs]
        if any(points):
            lines += _panel(panel, points, max(longest, 1), report.setting.window_tokens)
    if report.note:
        lines.append(_text(_LEFT, HEIGHT - 8, report.note))
    return "\n".join([*lines, "</svg>", ""])


def _legend(programs: list[Program]) -> Iterator[str]:
    x = _LEFT
    for number, program in enumerate(programs):
        name = f"{program.name} {program.version}"
        yield f'<rect x="{x}" y="34" width="12" height="4" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
        yield _text(x + 18, 40, name)
        x += 40 + 7 * len(name)


def _points(program: Program, panel: Panel) -> list[tuple[int, float]]:
    values = ((turn.chat_tokens, panel.value(turn)) for turn in program.turns)
    return [(tokens, value) for tokens, value in values if value]


def _panel(panel: Panel, series: list[list[tuple[int, float]]], longest: int, window: int) -> Iterator[str]:
    values = [value for points in series for _, value in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    wide, bottom = WIDTH - _LEFT - _RIGHT, panel.top + _PANEL

    def x(tokens: float) -> float:
        return _LEFT + wide * tokens / longest

    def y(value: float) -> float:
        return bottom - _PANEL * (math.log10(value) - low) / (high - low)

    yield _text(_LEFT, panel.top - 8, panel.title)
    for value in _decades(low, high):
        yield _line(_LEFT, y(value), WIDTH - _RIGHT, y(value), _GRID)
        yield _text(_LEFT - 8, y(value) + 4, f"{value:,g}", "end")
    for tokens in _ticks(longest):
        yield _text(x(tokens), bottom + 18, f"{tokens:,}", "middle")
    yield _line(_LEFT, bottom, WIDTH - _RIGHT, bottom, _AXIS)
    yield _text(WIDTH - _RIGHT, bottom + 34, "tokens of the chat", "end")
    if window <= longest:
        yield _line(x(window), panel.top, x(window), bottom, _AXIS, dashed="4 4")
        yield _text(x(window) + 4, bottom - 8, "window full")
    for number, points in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x(tokens):.1f},{y(value):.1f}" for tokens, value in points)
        if points:
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for tokens, value in points:
            yield f'<circle cx="{x(tokens):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>'


def _decades(low: int, high: int) -> Iterator[float]:
    """1, 2 and 5 of each power of ten, or the powers alone where they are many."""
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    return (step * 10.0**power for power in range(low, high + 1) for step in steps if step == 1 or power < high)


def _ticks(longest: int) -> Iterator[int]:
    """Four to eight round numbers up to the chat's end."""
    step = 10 ** max(0, len(str(longest)) - 1)
    while longest // step < 4 and step > 1:
        step //= 2
    return iter(range(0, longest + 1, max(1, step)))


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: str = "none") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-dasharray="{dashed}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
