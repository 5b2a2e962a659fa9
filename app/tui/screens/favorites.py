"""The starred messages of all chats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.ids import ChatId
from app.ports import DeskPort
from app.store.types import Message
from app.tui.glyphs import GLYPHS
from app.tui.screens.dialog import Dialog
from app.tui.text import clock, one_line
from app.tui.widgets.message import NAMES
from app.tui.work import start


class Wish(StrEnum):
    """What to do with the chosen message."""

    OPEN = "open"
    QUOTE = "quote"


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen favourite."""

    message: Message
    wish: Wish


class FavoritesScreen(Dialog[Choice | None]):
    """The list of starred messages. Result: a message to open or to quote, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quote", "Quote", show=False),
        Binding("s", "unstar", "Unstar", show=False),
    ]
    heading = f"{GLYPHS.star} Starred messages"
    keys = "Enter opens    q quotes in the next message    s takes the star off    Esc closes"

    def __init__(self, desk: DeskPort) -> None:
        super().__init__()
        self._desk = desk
        self._messages: list[Message] = []
        self._titles: dict[ChatId, str] = {}

    def body(self) -> ComposeResult:
        """The list."""
        yield OptionList(id="list", markup=False)
        yield Static("No starred messages yet: select one and press s.", classes="empty", id="none")

    def on_mount(self) -> None:
        """Fill the list."""
        self.query_one("#none").display = False
        start(self, self._load(), "favorites", exclusive=True)

    async def _load(self) -> None:
        self._messages = await self._desk.favorites()
        self._titles = {chat.id: chat.title for chat in await self._desk.chats()}
        options = self.query_one(OptionList)
        highlighted = options.highlighted or 0
        options.clear_options()
        options.add_options([Option(self._line(message)) for message in self._messages])
        options.highlighted = min(highlighted, len(self._messages) - 1) if self._messages else None
        self.query_one("#none").display = not self._messages

    def _line(self, message: Message) -> Content:
        title = one_line(self._titles.get(message.chat, "") or "untitled", 40)
        return Content.assemble(
            (f"{NAMES[message.role]}  ", "bold"),
            (f"{title}  {clock(message.created)}\n", "$foreground 60%"),
            one_line(message.text, 180),
        )

    @property
    def highlighted(self) -> Message | None:
        """The message under the cursor."""
        index = self.query_one(OptionList).highlighted
        return None if index is None else self._messages[index]

    @on(OptionList.OptionSelected)
    def _open(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(Choice(self._messages[event.option_index], Wish.OPEN))

    def action_quote(self) -> None:
        """Quote the message under the cursor."""
        if (message := self.highlighted) is not None:
            self.dismiss(Choice(message, Wish.QUOTE))

    def action_unstar(self) -> None:
        """Take the star off the message under the cursor."""
        if (message := self.highlighted) is not None:
            start(self, self._unstar(message), "star")

    async def _unstar(self, message: Message) -> None:
        await self._desk.star(message.id, False)
        await self._load()
