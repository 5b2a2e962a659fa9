"""All chats: open, rename, delete."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.ids import ChatId
from app.ports import DeskPort
from app.store.types import Chat
from app.tui.glyphs import GLYPHS
from app.tui.screens.confirm import AskScreen, ConfirmScreen
from app.tui.screens.dialog import Dialog
from app.tui.text import clock, one_line, plural
from app.tui.work import start


def chat_option(chat: Chat, current: ChatId | None) -> Content:
    """A chat as one line: title, size, last use."""
    mark = f"{GLYPHS.dot} " if chat.id == current else "  "
    fork = "  fork" if chat.forked_from is not None else ""
    return Content.assemble(
        (mark, "$text-accent"),
        (one_line(chat.title or "untitled", 60), "bold" if chat.id == current else ""),
        (f"   {plural(chat.messages, 'message')}  {clock(chat.updated)}{fork}", "$foreground 60%"),
    )


class ChatsScreen(Dialog[ChatId | None]):
    """The list of chats. Result: the chat to open, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,f2", "rename", "Rename", show=False),
        Binding("d,delete", "delete", "Delete", show=False),
        Binding("slash", "filter", "Filter", show=False),
    ]
    heading = "Chats"
    keys = "Enter opens    / filters by title    r renames    d deletes    Esc closes"

    def __init__(self, desk: DeskPort, current: ChatId | None) -> None:
        super().__init__()
        self._desk = desk
        self._current = current
        self._chats: list[Chat] = []
        self._shown: list[Chat] = []

    def body(self) -> ComposeResult:
        """Filter and list."""
        yield Input(placeholder="Part of a title", id="filter")
        yield OptionList(id="list", markup=False)
        yield Static("No chats yet.", classes="empty", id="none")

    def on_mount(self) -> None:
        """Fill the list."""
        self.query_one("#filter").display = False
        self.query_one("#none").display = False
        self.query_one(OptionList).focus()
        start(self, self._load(), "chats", exclusive=True)

    async def _load(self) -> None:
        self._chats = await self._desk.chats()
        self._fill()

    def _fill(self) -> None:
        wanted = self.query_one("#filter", Input).value.casefold()
        self._shown = [chat for chat in self._chats if wanted in chat.title.casefold()]
        options = self.query_one(OptionList)
        highlighted = options.highlighted or 0
        options.clear_options()
        options.add_options([Option(chat_option(chat, self._current)) for chat in self._shown])
        options.highlighted = min(highlighted, len(self._shown) - 1) if self._shown else None
        self.query_one("#none").display = not self._shown

    @property
    def highlighted(self) -> Chat | None:
        """The chat under the cursor."""
        index = self.query_one(OptionList).highlighted
        return None if index is None else self._shown[index]

    @on(OptionList.OptionSelected)
    def _open(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._shown[event.option_index].id)

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        self._fill()

    @on(Input.Submitted, "#filter")
    def _to_list(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(OptionList).focus()

    def action_filter(self) -> None:
        """Type a part of the title."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_rename(self) -> None:
        """Rename the chat under the cursor."""
        if (chat := self.highlighted) is not None:
            start(self, self._rename(chat), "rename")

    async def _rename(self, chat: Chat) -> None:
        title = await self.app.push_screen_wait(AskScreen("A title for this chat", chat.title))
        if title is not None:
            await self._desk.rename(chat.id, title)
            await self._load()

    def action_delete(self) -> None:
        """Delete the chat under the cursor, after a question."""
        if (chat := self.highlighted) is not None:
            start(self, self._delete(chat), "delete")

    async def _delete(self, chat: Chat) -> None:
        if await self.app.push_screen_wait(delete_question(chat)):
            await self._desk.delete(chat.id)
            await self._load()


def delete_question(chat: Chat) -> ConfirmScreen:
    """The question before a chat is deleted."""
    return ConfirmScreen(
        f"Delete “{one_line(chat.title or 'untitled', 60)}”?",
        f"Its {plural(chat.messages, 'message')} will be forgotten, in the memory too. "
        "Forks keep what they share. This cannot be undone.",
        "delete it",
    )
