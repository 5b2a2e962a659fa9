"""The screen beside the engine: from a key to its character on the screen, while an answer streams, and with none.

The real program in a pseudo-terminal, with its own default of threads and its own sampling; keys come at a person's
pace. A key counts when the answer was streaming before it and after it. The time ends when the program's output that
shows the character has been read; what the terminal emulator needs to draw it is no part of it, but takes its share of
the cores.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.bench.cpu.setting import Figures
from tests.bench.report import median, percentile
from tests.stories.people import home
from tests.terminal import Terminal

KEYS, APART, LINE = 150, 0.13, 40
"""Keys of each kind; seconds between two (90 words a minute); keys after which the prompt is emptied."""
LETTERS = "qzjxkvbwyg"
ASK = "Write a very long story about a lighthouse keeper. Tell every day of the year, one after the other."
SETTINGS = 'max_tokens = 100000\nend_loops = "off"\nrecall = "off"\n'
EMPTIES = "\x15"
"""Ctrl+U."""


def measure(_file: Path) -> Figures:
    """ui_key_p99_ms_while_decoding and ui_key_p99_ms_idle."""
    with tempfile.TemporaryDirectory() as name:
        home(Path(name)).config_file.write_text(SETTINGS)
        terminal = Terminal(Path(name))
        terminal.process.delaybeforesend = None  # pexpect waits 50 ms before it sends
        try:
            terminal.wait_for("Ask anything")
            _ask(terminal)
            busy = _keys(terminal, streams=True)
            terminal.press("\x1b")
            terminal.wait_until(lambda: not _streams(terminal), "the end of the answer")
            idle = _keys(terminal, streams=False)
        finally:
            terminal.kill()
    for words, taken in (("while decoding", busy), ("idle", idle)):
        print(f"{len(taken)} keys {words}: median {median(taken):.1f} ms, longest {max(taken):.1f} ms", flush=True)
    return {"ui_key_p99_ms_while_decoding": percentile(busy, 99), "ui_key_p99_ms_idle": percentile(idle, 99)}


def _ask(terminal: Terminal) -> None:
    terminal.press(f"{ASK}\r")
    terminal.wait_until(lambda: _streams(terminal), "an answer")


def _streams(terminal: Terminal) -> bool:
    return "writing" in terminal.text


def _keys(terminal: Terminal, *, streams: bool) -> list[float]:
    """Milliseconds of each key; a new question is asked when an answer has ended."""
    taken: list[float] = []
    typed = ""
    while len(taken) < KEYS:
        if streams and not _streams(terminal):
            terminal.press(EMPTIES)
            typed = ""
            _ask(terminal)
        at = time.monotonic() + APART
        terminal.wait_until(lambda at=at: time.monotonic() >= at, "the next key's time")  # type: ignore[misc]
        if len(typed) == LINE:
            terminal.press(EMPTIES)
            gone = typed
            terminal.wait_until(lambda gone=gone: gone not in terminal.text, "an empty prompt")  # type: ignore[misc]
            typed = ""
        typed += LETTERS[len(typed) * 7 % 10 if len(typed) % 2 else len(typed) // 2 % 10]
        was = _streams(terminal)
        began = time.perf_counter()
        terminal.press(typed[-1])
        terminal.wait_until(lambda shown=typed: shown in terminal.text, f"what was typed, {typed!r}")  # type: ignore[misc]
        if was is streams and _streams(terminal) is streams:
            taken.append(1000 * (terminal.read_at - began))
    return taken
