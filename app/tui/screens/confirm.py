"""A yes-or-no question, a one-line question, and a text to read."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from app.tui.screens.dialog import Dialog


class ConfirmScreen(Dialog[bool | None]):
    """Asks before something that cannot be undone. Result: True for yes, False or None for no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes", show=False),
        Binding("n", "answer(False)", "No", show=False),
    ]

    def __init__(self, question: str, explanation: str, yes: str) -> None:
        super().__init__()
        self.heading = question
        self.keys = f"Enter or y: {yes}    Esc or n: leave it as it is"
        self._explanation = explanation

    def body(self) -> ComposeResult:
        """What yes would do."""
        yield Static(Content(self._explanation), classes="empty")

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)


class AskScreen(Dialog[str | None]):
    """Asks for one line, with a value to start from. Result: the line, or None."""

    keys = "Enter accepts    Esc leaves it as it is"

    def __init__(self, question: str, value: str) -> None:
        super().__init__()
        self.heading = question
        self._value = value

    def body(self) -> ComposeResult:
        """The line."""
        yield Input(self._value)

    @on(Input.Submitted)
    def _accept(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)


class PasswordScreen(AskScreen):
    """Asks for the password of an encrypted file; what is typed is not shown. Result: the password, or None."""

    keys = "Enter opens the file    Esc leaves it out"

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"Password of {name}", "")
        self._sentence = sentence

    def body(self) -> ComposeResult:
        """Why it is asked, and the line."""
        yield Static(Content(self._sentence), classes="empty")
        yield Input(password=True)


class TextScreen(Dialog[None]):
    """Shows a text exactly as it is: a passage, the window's facts."""

    DEFAULT_CSS = """
    TextScreen VerticalScroll { height: auto; max-height: 50vh; padding: 1; Static { height: auto; } }
    """
    keys = "Up and Down scroll    Esc closes"

    def __init__(self, heading: str, text: str) -> None:
        super().__init__()
        self.heading = heading
        self._text = text

    def body(self) -> ComposeResult:
        """The text."""
        with VerticalScroll():
            yield Static(Content(self._text))
