"""The real program in a terminal: start, type, stream, stop, resize, quit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stories.people import home
from tests.terminal import Terminal


@pytest.mark.slow
def test_a_session_in_a_terminal(tmp_path: Path) -> None:
    home(tmp_path)
    terminal = Terminal(tmp_path, "--window", "512", "--temperature", "0")
    terminal.wait_for("Ask anything")
    terminal.type("Name three colours.")
    terminal.press("\r")
    terminal.wait_for("Name three colours.")
    terminal.wait_for("tok/s")
    assert "of 512 tokens visible" in terminal.text

    terminal.type("Tell me a long story about a fox and the sea.")
    terminal.press("\r")
    terminal.wait_for("Esc stops")
    terminal.wait_for("writing")
    terminal.press("\x1b")
    terminal.wait_for("stopped")

    terminal.resize(80, 24)
    terminal.wait_until(lambda: "long story" in terminal.text or "stopped" in terminal.text, "the chat at 80x24")
    terminal.resize(120, 36)
    terminal.wait_for("tokens visible")

    terminal.press("\x11")
    assert terminal.wait_for_exit() == 0
    assert b"Traceback" not in terminal.raw
    # The terminal is given back: main screen, cursor, no mouse reports, no bracketed paste.
    for restored in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l"):
        assert restored in terminal.raw[-4000:]
    assert not any((tmp_path / "logs" / name).read_text().count("Traceback") for name in ("engine.log", "memory.log"))


@pytest.mark.slow
def test_typing_works_before_the_model_is_there(tmp_path: Path) -> None:
    home(tmp_path)
    terminal = Terminal(tmp_path, "--temperature", "0", "--max-tokens", "16")
    terminal.wait_for("Ask anything")
    terminal.type("Hello!")
    terminal.press("\r")
    terminal.wait_for("loading")
    terminal.wait_for("Hello!")
    terminal.wait_for("tok/s")
    terminal.press("\x11")
    assert terminal.wait_for_exit() == 0
