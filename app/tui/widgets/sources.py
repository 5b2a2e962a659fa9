"""The sources panel: what recall decided, why, and the passages that went into the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as Event
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.host.wire import Passage
from app.tui.text import one_line


def passage_option(passage: Passage, width: int) -> Content:
    """A passage as label, place, score and its first lines."""
    head = Content.assemble(
        (f"[{passage.label}] " if passage.label else "", "bold $text-accent"),
        (passage.place(), "bold"),
        (f"  {passage.score:.2f}", "$foreground 60%"),
    )
    # A blank last line parts it from the next one: options have no space between them.
    return Content.assemble(head, "\n", (one_line(passage.text, max(20, width) * 2), "$foreground 60%"), "\n ")


class PassageList(OptionList):
    """Passages; Enter opens one."""

    DEFAULT_CSS = """
    PassageList {
        height: 1fr;
        border: none;
        padding: 0;
        background: transparent;
        scrollbar-size-vertical: 1;
        &:focus { border: none; background-tint: transparent; }
        & > .option-list--option { padding: 0 1 0 0; }
        & > .option-list--option-highlighted { background: transparent; }
        &:focus > .option-list--option-highlighted {
            background: $boost;
            color: $foreground;
            text-style: none;
        }
    }
    """

    @dataclass
    class Opened(Event):
        """A passage was chosen."""

        passage: Passage

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id, markup=False)
        self.passages: tuple[Passage, ...] = ()

    def show(self, passages: Sequence[Passage]) -> None:
        """Show these passages, best first."""
        self.passages = tuple(passages)
        self._fill()

    def enter(self) -> None:
        """Come here with the best one under the cursor."""
        self.focus()
        if self.passages and self.highlighted is None:
            self.highlighted = 0

    def _fill(self) -> None:
        highlighted = self.highlighted
        width = self.scrollable_content_region.width or 30
        self.clear_options()
        self.add_options([Option(passage_option(p, width - 2)) for p in self.passages])
        if self.passages and highlighted is not None:
            self.highlighted = min(highlighted, len(self.passages) - 1)

    def on_resize(self) -> None:
        """The first lines depend on the width."""
        if self.passages:
            self._fill()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Tell which passage."""
        event.stop()
        self.post_message(self.Opened(self.passages[event.option_index]))


class SourcesPanel(Vertical):
    """The decision of recall with its reason, and the passages."""

    DEFAULT_CSS = """
    SourcesPanel {
        .panel--title { color: $text-primary; text-style: bold; height: 1; }
        #reason { color: $text-muted; height: auto; margin: 0 0 1 0; }
        height: 1fr;
    }
    """

    def compose(self) -> ComposeResult:
        """Title, reason, list."""
        yield Static("Sources", classes="panel--title")
        yield Static("", id="reason")
        yield PassageList(id="passages")

    def on_mount(self) -> None:
        """Say what the panel is for."""
        self.show("Passages recalled for a question appear here.", ())

    def show(self, reason: str, passages: Sequence[Passage]) -> None:
        """Show one decision."""
        self.query_one("#reason", Static).update(Content(reason))
        self.query_one(PassageList).show(passages)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages shown."""
        return self.query_one(PassageList).passages
