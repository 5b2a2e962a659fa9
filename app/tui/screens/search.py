"""Search over every chat and document."""

from __future__ import annotations

import asyncio

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from app.events import ModelPhase, Part
from app.host.wire import Passage
from app.ports import DeskError, DeskPort
from app.tui.screens.dialog import Dialog
from app.tui.text import plural
from app.tui.widgets.sources import PassageList
from app.tui.work import start

PAUSE = 0.2
"""Seconds without a key before a search starts: one search a pause, not one a letter."""


class SearchScreen(Dialog[Passage | None]):
    """A line to search with and what it finds. Result: the passage to open, or None."""

    DEFAULT_CSS = """
    SearchScreen > #box {
        height: 90%;
        #outcome { padding: 0 1; }
        PassageList { height: 1fr; max-height: 100%; }
    }
    """
    heading = "Search chats and documents"
    keys = "Down goes to the results    Enter opens the place    Esc closes"

    def __init__(self, desk: DeskPort, words: str) -> None:
        super().__init__()
        self._desk = desk
        self._words = words

    def body(self) -> ComposeResult:
        """Line, outcome, results."""
        yield Input(self._words, placeholder="Words, in any language")
        yield Static("", classes="empty", id="outcome")
        yield PassageList()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        start(self, self._search(event.value.strip(), PAUSE), "search", exclusive=True)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        results = self.query_one(PassageList)
        if results.passages:
            results.enter()
        else:
            start(self, self._search(event.value.strip(), 0), "search", exclusive=True)

    async def _search(self, words: str, pause: float) -> None:
        await asyncio.sleep(pause)
        outcome, results = self.query_one("#outcome", Static), self.query_one(PassageList)
        if not words:
            outcome.update("")
            results.show(())
            return
        try:
            found = await self._desk.search(words, limit=20)
        except DeskError as error:
            outcome.update(Content(str(error)))
            results.show(())
            return
        results.show(found.passages)
        count = plural(len(found.passages), "passage") if found.passages else "Nothing found"
        up = any(state.part is Part.MEMORY and state.phase is ModelPhase.READY for state in self._desk.models)
        where = "" if up else ", in the words of the chats only: the memory is not up"
        outcome.update(Content(f"{count} in {found.seconds * 1000:.0f} ms{where}"))

    def key_down(self) -> None:
        """From the line to the results."""
        results = self.query_one(PassageList)
        if results.passages and self.focused is not results:
            results.enter()

    @on(PassageList.Opened)
    def _opened(self, event: PassageList.Opened) -> None:
        event.stop()
        self.dismiss(event.passage)
