"""The real program in a real pseudo-terminal, read through a terminal emulator (pyte)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pexpect
import psutil
import pyte

LONGEST = 180.0
"""Seconds any wait may take; a loaded machine is slow, a broken program never gets there."""


class Terminal:
    """`aios-chat`, or another program, on a screen of `columns` by `rows`, with its data under `home`."""

    def __init__(
        self,
        home: Path,
        *arguments: str,
        columns: int = 120,
        rows: int = 36,
        program: Sequence[str] = (sys.executable, "-m", "app"),
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.read_at = 0.0
        """When the newest output was there, by `time.perf_counter`."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("AIOS_CHAT_", "NO_COLOR", "SSH_"))}
        environment |= {
            "AIOS_CHAT_HOME": str(home),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
        }
        self.process = pexpect.spawn(
            program[0],
            [*program[1:], *arguments],
            env=environment,
            dimensions=(rows, columns),
            timeout=LONGEST,
        )

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.screen.display)

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        """Read output until `true()`; fails with the screen when it never is."""
        deadline = time.monotonic() + LONGEST
        while not true():
            assert time.monotonic() < deadline, f"never saw {what}:\n{self.text}"
            assert self._read() or true(), f"the program ended before {what}:\n{self.text}"

    def wait_for(self, text: str) -> None:
        """Read output until `text` is on the screen."""
        self.wait_until(lambda: text in self.text, repr(text))

    def wait_for_exit(self) -> int:
        """Read output to its end; the exit code."""
        while self._read():
            pass
        self.process.close()
        code = self.process.exitstatus
        assert code is not None, f"ended by signal {self.process.signalstatus}"
        return code

    def press(self, keys: str) -> None:
        """Send keys as they are."""
        self.process.send(keys)

    def type(self, text: str) -> None:
        """Type like a person: the next key when the last one is to be seen."""
        typed = ""
        for key in text:
            typed += key
            self.press(key)
            shown = typed.strip()[-20:]
            self.wait_until(lambda shown=shown: shown in self.text, f"what was typed, {shown!r}")  # type: ignore[misc]

    def paste(self, text: str) -> None:
        """A bracketed paste, as terminals deliver a drop."""
        self.press(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size."""
        self.screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    def family(self) -> list[psutil.Process]:
        """The program and everything it started."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def kill(self) -> None:
        """kill -9 of the whole program."""
        processes = self.family()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(processes[1:])

    def _read(self) -> bool:
        try:
            data = self.process.read_nonblocking(1 << 16, timeout=0.2)
        except pexpect.TIMEOUT:
            return self.process.isalive()
        except pexpect.EOF:
            return False
        self.read_at = time.perf_counter()
        self.raw += data
        self._stream.feed(data)
        return True
