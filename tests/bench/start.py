"""From the command to the first frame, and what each process weighs: `python -m tests.bench.start`.

The floor is a Textual application with a title and a prompt, started the same way, interleaved with ours.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.bench.report import median, report
from tests.stories.people import home
from tests.terminal import Terminal

ROUNDS = 7
FLOOR = """
from textual.app import App
from textual.widgets import Static, TextArea
class Floor(App):
    def compose(self):
        yield Static("Ask anything")
        yield TextArea()
Floor().run()
"""


def first_frame(folder: Path, *command: str) -> float:
    """Milliseconds from starting a program to its first words on the screen; the program is then ended."""
    began = time.perf_counter()
    terminal = Terminal(folder, program=command)
    terminal.wait_for("Ask anything")
    taken = (time.perf_counter() - began) * 1000
    terminal.kill()
    return taken


def peak_mib(process: psutil.Process) -> float:
    """Peak resident memory."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not say VmHWM")


def main() -> None:
    """Measure, print, report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home(folder)
        floor_file = folder / "floor.py"
        floor_file.write_text(FLOOR)
        ours, floor, helps = [], [], []
        for _ in range(ROUNDS):
            floor.append(first_frame(folder, sys.executable, str(floor_file)))
            ours.append(first_frame(folder, sys.executable, "-m", "app"))
            began = time.perf_counter()
            Terminal(folder, program=(sys.executable, "-m", "app", "--help")).wait_for_exit()
            helps.append((time.perf_counter() - began) * 1000)
        print("first frame, ms:", *(f"{x:.0f}" for x in ours), "| floor:", *(f"{x:.0f}" for x in floor))

        terminal = Terminal(folder, program=(sys.executable, "-m", "app", "--temperature", "0"))
        terminal.wait_for("Ask anything")
        terminal.type("Write a short story about a lighthouse.")
        terminal.press("\r")
        terminal.wait_for("tok/s")
        family = terminal.family()
        peaks = {
            part: peak_mib(p)
            for p in family
            for part in ("engine", "memory")
            if f"app.host.{part}_child" in p.cmdline()
        }
        peaks["ui"] = peak_mib(family[0])
        terminal.press("\x11")
        terminal.wait_for_exit()
    report(
        first_frame_ms=median(ours),
        first_frame_vs_floor=median(ours) / median(floor),
        help_ms=median(helps),
        ui_peak_mib=peaks["ui"],
        engine_peak_mib=peaks["engine"],
        memory_peak_mib=peaks["memory"],
    )


if __name__ == "__main__":
    main()
