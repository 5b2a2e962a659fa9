"""The sources panel as a dialog, for terminals too narrow to show it beside the chat."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult

from app.host.wire import Passage
from app.tui.screens.confirm import TextScreen
from app.tui.screens.dialog import Dialog
from app.tui.widgets.sources import PassageList, SourcesPanel


class SourcesScreen(Dialog[None]):
    """Decision, reason and passages; Enter opens one."""

    DEFAULT_CSS = """
    SourcesScreen > #box { height: 80%; PassageList { height: 1fr; max-height: 100%; } }
    """
    heading = ""
    keys = "Enter opens a passage    Esc closes"

    def __init__(self, reason: str, passages: Sequence[Passage]) -> None:
        super().__init__()
        self._reason = reason
        self._passages = tuple(passages)

    def body(self) -> ComposeResult:
        """The panel."""
        yield SourcesPanel()

    def on_mount(self) -> None:
        """Fill it."""
        self.query_one("#heading").display = False
        self.query_one(SourcesPanel).show(self._reason, self._passages)
        self.query_one(PassageList).focus()

    @on(PassageList.Opened)
    def _opened(self, event: PassageList.Opened) -> None:
        event.stop()
        self.app.push_screen(passage_screen(event.passage))


def passage_screen(passage: Passage) -> TextScreen:
    """A passage in full, with where it stands."""
    where = f" ({passage.path})" if passage.path else ""
    return TextScreen(f"[{passage.label}] {passage.place()}{where}", passage.text)
