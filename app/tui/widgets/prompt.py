"""The prompt: where a person writes, pastes and drops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message as Event
from textual.timer import Timer
from textual.widgets import TextArea

from app.actions import ActionId, Context
from app.slash import matching_commands
from app.tui.bindings import bindings, keys
from app.tui.text import newlines

COALESCE = 0.05
"""Seconds: Alacritty pastes each of several dropped files by itself, back to back."""
HISTORY = 200


def offset_of(text: str, location: tuple[int, int]) -> int:
    """The character offset of a (row, column) in a text of LF-ended lines."""
    row, column = location
    return sum(len(line) + 1 for line in text.split("\n")[:row]) + column


def location_of(text: str, offset: int) -> tuple[int, int]:
    """The (row, column) of a character offset: the inverse of `offset_of`."""
    before = text[:offset]
    return before.count("\n"), offset - (before.rfind("\n") + 1)


def landing(before: str, offset: int, now: str) -> int | None:
    """Where a paste belongs, if `now` differs from the text `before` it only by what was typed at `offset`.

    None when something else changed. Keeps "paste, then type on" in order however long the look takes.
    """
    typed = len(now) - len(before)
    if typed >= 0 and now[:offset] == before[:offset] and now[offset + typed :] == before[offset:]:
        return offset
    return None


class Prompt(TextArea):
    """A text area in which Enter sends. Decides nothing: it tells the screen."""

    DEFAULT_CSS = """
    Prompt {
        height: auto;
        min-height: 3;
        max-height: 11;
        border: round $border-blurred;
        background: $background;
        padding: 0 1;
        scrollbar-size-vertical: 1;
        &:focus { border: round $border; background: $background; }
        & .text-area--cursor-line { background: transparent; }
        &.-ascii, &.-ascii:focus { border: ascii $border; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings(Context.CHAT)

    @dataclass
    class Submitted(Event):
        """Enter was pressed; the prompt is already empty."""

        text: str

    @dataclass
    class Pasted(Event):
        """One or more pastes within 50 ms. The screen answers with `land`."""

        pastes: tuple[str, ...]

    @dataclass
    class DetachWanted(Event):
        """Backspace in an empty prompt."""

    @dataclass
    class UnqueueWanted(Event):
        """Up in an empty prompt while messages are queued."""

    @dataclass
    class PageWanted(Event):
        """Page up (-1) or page down (1)."""

        direction: int

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(
            id=id, placeholder="Ask anything, or drop a file here (Ctrl+J: new line)", highlight_cursor_line=False
        )
        self.cursor_blink = False
        self.queue_waits = False
        self._history: list[str] = []
        self._at: int | None = None
        self._pastes: list[str] = []
        self._paste_timer: Timer | None = None
        self._paste_before = ""
        self._paste_offset = 0
        self._reading = 0
        self._submit_after = False

    # --- keys -------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if event.key in keys(ActionId.SEND):
            self._take(event)
            self.submit()
        elif event.key in keys(ActionId.NEWLINE):
            self._take(event)
            self.insert("\n")
        elif event.key == "tab" and (matches := matching_commands(self.text)):
            self._take(event)
            self.set_text(f"/{matches[0].command} " if matches[0].argument else f"/{matches[0].command}")
        elif event.key in keys(ActionId.DETACH) and not self.text:
            self._take(event)
            self.post_message(self.DetachWanted())
        elif event.key in keys(ActionId.UNQUEUE) and self._walks():
            self._take(event)
            if self.queue_waits and not self.text:
                self.post_message(self.UnqueueWanted())
            else:
                self._walk(-1)
        elif event.key == "down" and self._at is not None:
            self._take(event)
            self._walk(1)
        elif event.key in keys(ActionId.PAGE_UP) | keys(ActionId.PAGE_DOWN):
            # They scroll the chat, not this box of at most nine lines.
            self._take(event)
            self.post_message(self.PageWanted(-1 if event.key in keys(ActionId.PAGE_UP) else 1))
        else:
            await super()._on_key(event)

    @staticmethod
    def _take(event: events.Key) -> None:
        event.stop()
        event.prevent_default()

    def submit(self) -> None:
        """Hand the text over; after a paste that is still being looked at."""
        if self._pasting:
            self._submit_after = True
            return
        text = self.text
        if text.strip():
            self.remember(text)
        self.text = ""
        self._at = None
        self.post_message(self.Submitted(text))

    # --- history ----------------------------------------------------------------------------------

    def remember(self, text: str) -> None:
        """Add a text to the history."""
        if not self._history or self._history[-1] != text:
            self._history.append(text)
            del self._history[:-HISTORY]

    def _walks(self) -> bool:
        return not self.text or (self._at is not None and self.text == self._history[self._at])

    def _walk(self, direction: int) -> None:
        if not self._history:
            return
        at = (len(self._history) if self._at is None else self._at) + direction
        if at >= len(self._history):
            self._at = None
            self.text = ""
            return
        self._at = max(0, at)
        self.set_text(self._history[self._at])

    def set_text(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    def give_back(self, text: str) -> None:
        """Put a text that could not be sent back in front of what was written since."""
        self.set_text(f"{text}\n{self.text}" if self.text.strip() else text)

    # --- pastes -----------------------------------------------------------------------------------

    @property
    def _pasting(self) -> bool:
        return bool(self._pastes) or self._reading > 0

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Take a paste or a drop; the screen learns whether it names files before any of it is inserted."""
        text = newlines(text)
        if not text:
            return
        if not self.selection.is_empty:
            self.delete(*self.selection)
        if not self._pastes:
            self._paste_before = self.text
            self._paste_offset = offset_of(self.text, self.cursor_location)
        self._pastes.append(text)
        if self._paste_timer is not None:
            self._paste_timer.stop()
        self._paste_timer = self.set_timer(COALESCE, self._hand_over)

    def _hand_over(self) -> None:
        pastes, self._pastes = tuple(self._pastes), []
        self._paste_timer = None
        self._reading += 1
        self.post_message(self.Pasted(pastes))

    def land(self, text: str) -> None:
        """The screen's answer to `Pasted`: the text to insert, "" when it was files."""
        self._reading -= 1
        if text:
            offset = landing(self._paste_before, self._paste_offset, self.text)
            if offset is None:
                self.insert(text)
            else:
                place = location_of(self.text, offset)
                at_end = self.cursor_location == place
                self.insert(text, place, maintain_selection_offset=not at_end)
        if self._submit_after and not self._pasting:
            self._submit_after = False
            self.submit()
