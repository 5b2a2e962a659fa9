"""What the modal screens share: a titled box, a line of keys, Esc to leave."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A modal box. Subclasses give `heading`, `keys` and `body`."""

    DEFAULT_CSS = """
    Dialog {
        align: center middle;
        background: $background 60%;
        & > #box {
            width: 90%;
            max-width: 100;
            height: auto;
            max-height: 90%;
            background: $surface;
            border: round $primary;
            padding: 0 1;
            & > #heading { color: $text-primary; text-style: bold; height: auto; padding: 0 1; }
            & > #keys { dock: bottom; color: $text-muted; height: auto; padding: 1 1 0 1; }
        }
        OptionList {
            height: auto;
            max-height: 50vh;
            border: none;
            background: transparent;
            &:focus { border: none; background-tint: transparent; }
            & > .option-list--option { padding: 0 1; }
        }
        Input {
            margin: 1 0 0 0;
            border: round $border-blurred;
            background: $surface;
            &:focus { border: round $border; }
        }
        .empty { color: $text-muted; padding: 1; height: auto; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close", show=False)]

    heading: str = ""
    keys: str = "Esc closes"

    def compose(self) -> ComposeResult:
        """Title, body, keys."""
        with Vertical(id="box"):
            yield Static(Content(self.heading), id="heading")
            yield from self.body()
            yield Static(Content(self.keys), id="keys")

    def body(self) -> ComposeResult:
        """What the dialog is about; nothing where the heading says it all."""
        yield from ()

    def action_leave(self) -> None:
        """Close without a result."""
        self.dismiss(None)
