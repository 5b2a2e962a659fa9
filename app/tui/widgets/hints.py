"""The commands that match what is being typed after a slash."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from app.actions import Action
from app.slash import matching_commands


class CommandHints(Static):
    """A short list above the prompt; hidden unless a `/word` is being typed."""

    DEFAULT_CSS = """
    CommandHints { height: auto; padding: 0 2; color: $text-muted; }
    """
    SHOWN = 6

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__("", id=id)
        self.display = False
        self.matches: tuple[Action, ...] = ()

    def show(self, text: str) -> None:
        """Show what the prompt's text may become."""
        self.matches = matching_commands(text)
        self.display = bool(self.matches)
        lines = [
            Content.assemble((f"{action.usage:<18}", "$text-primary"), action.title)
            for action in self.matches[: self.SHOWN]
        ]
        if len(self.matches) > self.SHOWN:
            lines.append(Content(f"and {len(self.matches) - self.SHOWN} more: /help"))
        self.update(Content("\n").join(lines))
