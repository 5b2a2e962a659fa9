"""Every key and command, made from the table of actions."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.actions import ACTIONS, Context, Group
from app.tui.bindings import key_words
from app.tui.screens.dialog import Dialog

_WHERE = {
    Context.CHAT: "in the prompt",
    Context.EMPTY: "in an empty prompt",
    Context.MESSAGE: "on a selected message",
    Context.GLOBAL: "anywhere",
}


def help_text() -> Content:
    """The table of actions as text: by group, with keys, where they work, command and what it does."""
    parts: list[str | tuple[str, str]] = []
    for group in Group:
        parts.append((f"\n{group.value}\n", "bold $text-accent"))
        for action in (a for a in ACTIONS if a.group is group):
            reach = f"{key_words(action)} {_WHERE[action.context]}" if action.keys else ""
            how = "   ".join(part for part in (reach, action.usage) if part)
            parts.append((f"{action.title:<24}", "bold"))
            parts.append((f"  {how}\n", "$text-primary"))
            parts.append((f"    {action.help}\n", "$foreground 60%"))
    return Content.assemble(*parts)


class HelpScreen(Dialog[None]):
    """The help screen."""

    DEFAULT_CSS = """
    HelpScreen VerticalScroll { height: 1fr; padding: 0 1; Static { height: auto; } }
    HelpScreen > #box { height: 90%; }
    """
    heading = "aios-chat: keys and commands"
    keys = "Up and Down scroll    Esc closes    Ctrl+P finds an action by name"

    def body(self) -> ComposeResult:
        """The table."""
        with VerticalScroll():
            yield Static(help_text())
