"""The messages of a chat: a bounded number of widgets over a chat of any length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message as Event
from textual.widgets import Static

from app.actions import Context
from app.ids import MessageId
from app.store.types import Message
from app.tui.bindings import bindings
from app.tui.widgets.follow import FollowView
from app.tui.widgets.message import MessageView

MOUNTED = 50
"""The most message widgets at once: 50 mount in 0.8 s and 57 MiB, 500 in 4.6 s and 195 MiB."""
OPENED = 16
"""Widgets mounted when a chat is opened: about two screens, some 15 ms each."""
STEP = 15
"""Widgets brought in when an end of the mounted part is reached."""

WELCOME = (
    ("aios-chat\n\n", "bold $text-primary"),
    ("A chat that never has to end, in a memory that never grows.\n\n", ""),
    ("Write below. Drop a file here, or press Ctrl+O, to have it read.\n", "$foreground 60%"),
    ("What leaves the window turns grey, and is recalled when needed.\n", "$foreground 60%"),
    ("F1 lists every key.", "$foreground 60%"),
)


class Transcript(FollowView, can_focus=True):
    """Shows a window of the loaded messages and follows new text only while it is at the bottom."""

    DEFAULT_CSS = """
    Transcript {
        padding: 1 1 0 1;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $foreground 20%;
        background: $background;
        #welcome { margin: 2 4; height: auto; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings(Context.MESSAGE)

    @dataclass
    class EarlierWanted(Event):
        """The top was reached and the desk holds more before `before`."""

        before: MessageId

    @dataclass
    class FollowChanged(Event):
        """The view came to the bottom, or left it."""

        following: bool

    @dataclass
    class NewBelow(Event):
        """Text came in below the view."""

    @dataclass
    class Selected(Event):
        """Another message is selected; None when none is."""

        message: Message | None

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._messages: list[Message] = []
        self._first = 0
        self._last = 0
        self._earlier = 0
        self._asked = False
        self._followed = True
        self._evicted: frozenset[MessageId] = frozenset()
        self._known: dict[MessageId, str] = {}
        self._selected: MessageId | None = None

    def compose(self) -> ComposeResult:
        """An empty chat says what to do."""
        yield Static(Content.assemble(*WELCOME), id="welcome")

    # --- what is loaded ---------------------------------------------------------------------------

    @property
    def messages(self) -> Sequence[Message]:
        """Every loaded message, oldest first; only some are mounted."""
        return self._messages

    @property
    def mounted(self) -> list[MessageView]:
        """The mounted widgets, oldest first."""
        return list(self.query_children(MessageView))

    @property
    def selected(self) -> Message | None:
        """The selected message."""
        return self.find(self._selected) if self._selected is not None else None

    def find(self, message: MessageId) -> Message | None:
        """A loaded message by id."""
        return next((m for m in self._messages if m.id == message), None)

    def view(self, message: MessageId) -> MessageView | None:
        """The widget of a message, when it is mounted."""
        return next((w for w in self.mounted if w.message.id == message), None)

    # --- contents ---------------------------------------------------------------------------------

    async def show(self, messages: Iterable[Message], earlier: int, evicted: frozenset[MessageId]) -> None:
        """Show a chat from its tail; `earlier` messages stand before `messages` in the desk."""
        self._messages = list(messages)
        self._earlier, self._asked, self._evicted = earlier, False, evicted
        self._select(None)
        self._last = len(self._messages)
        self._first = max(0, self._last - OPENED)
        await self._mount_window()
        self.follow()

    async def add(self, message: Message) -> None:
        """A new message at the end."""
        at_end = self._last == len(self._messages)
        self._messages.append(message)
        if not at_end:
            self.post_message(self.NewBelow())
            return
        self._last += 1
        self._draw_welcome()
        await self._mount_views([message])
        if not self.following:
            self.post_message(self.NewBelow())
        elif len(self.mounted) > MOUNTED:
            # Dropping widgets at the top while the person reads there would move the view.
            await self.remove_children(self.mounted[: len(self.mounted) - MOUNTED])
            self._first = self._last - len(self.mounted)

    async def prepend(self, messages: Sequence[Message]) -> None:
        """Earlier messages from the desk, oldest first."""
        self._asked = False
        self._earlier = max(0, self._earlier - len(messages)) if messages else 0
        self._messages[:0] = messages
        self._first += len(messages)
        self._last += len(messages)
        if messages:
            await self._move_window(-STEP)

    def update_message(self, message: Message) -> None:
        """Changed facts of a message: star, status."""
        self._store(message)
        if (view := self.view(message.id)) is not None:
            view.replace(message)

    def grow(self, message: MessageId, text: str) -> None:
        """A streaming answer's text so far."""
        if (known := self.find(message)) is not None:
            self._store(replace(known, text=text))
        if (view := self.view(message)) is not None:
            view.grow(text)
        if not self.following:
            self.post_message(self.NewBelow())

    async def finish(self, message: Message) -> None:
        """A streaming answer is complete or stopped."""
        self._store(message)
        if (view := self.view(message.id)) is not None:
            await view.finish(message)

    def mark_evicted(self, evicted: frozenset[MessageId]) -> None:
        """Grey the messages that the model no longer sees."""
        self._evicted = evicted
        for view in self.mounted:
            view.mark_evicted(view.message.id in evicted)

    def know(self, message: Message) -> None:
        """Remember a message's text for the quotes of it, wherever it stands."""
        self._known[message.id] = message.text

    def _store(self, message: Message) -> None:
        for index in range(len(self._messages) - 1, -1, -1):
            if self._messages[index].id == message.id:
                self._messages[index] = message
                return

    # --- the mounted part -------------------------------------------------------------------------

    def _widget(self, message: Message) -> MessageView:
        quoted = None
        if message.quote is not None:
            original = self.find(message.quote)
            quoted = original.text if original is not None else self._known.get(message.quote)
        view = MessageView(message, quoted=quoted, evicted=message.id in self._evicted)
        view.set_class(message.id == self._selected, "-selected")
        return view

    def _draw_welcome(self) -> None:
        self.query_one("#welcome").display = not self._messages

    async def _mount_views(self, messages: Sequence[Message], before: MessageView | None = None) -> None:
        views = [self._widget(m) for m in messages]
        await self.mount_all(views, before=before)
        for view in views:
            view.hold(not self._followed)

    async def _mount_window(self) -> None:
        await self.query_children(MessageView).remove()
        self._draw_welcome()
        await self._mount_views(self._messages[self._first : self._last])

    async def _move_window(self, step: int) -> None:
        """Bring in up to |step| widgets at one end, drop the surplus at the other; the view stays."""
        if self._changing:
            return
        views = self.mounted
        async with self.in_place(views[0] if step < 0 else views[-1]):
            if step < 0:
                first = max(0, self._first + step)
                surplus = views[MOUNTED - (self._first - first) :]
                await self.remove_children(surplus)
                self._last -= len(surplus)
                await self._mount_views(self._messages[first : self._first], before=views[0])
                self._first = first
            else:
                last = min(len(self._messages), self._last + step)
                await self._mount_views(self._messages[self._last : last])
                self._last = last
                surplus = self.mounted[: max(0, len(self.mounted) - MOUNTED)]
                self._first += len(surplus)
                await self.remove_children(surplus)

    # --- scrolling --------------------------------------------------------------------------------

    def follow_settled(self) -> None:
        """Answers are written only while the view follows; the screen shows a hint otherwise."""
        following = self.following and self._last == len(self._messages)
        if following != self._followed:
            self._followed = following
            for view in self.mounted:
                view.hold(not following)
            self.post_message(self.FollowChanged(following))

    def top_reached(self) -> None:
        """Bring in what stands before."""
        if self._first > 0 or self._earlier > 0:
            self.call_later(self._reach_top)

    def bottom_reached(self) -> None:
        """Bring in what comes after."""
        if self._last < len(self._messages):
            self.call_later(self._move_window, STEP)

    async def _reach_top(self) -> None:
        if self._first > 0:
            await self._move_window(-STEP)
        elif self._earlier > 0 and not self._asked and self._messages:
            self._asked = True
            self.post_message(self.EarlierWanted(self._messages[0].id))

    async def latest(self) -> None:
        """Go to the end and follow new text."""
        if self._last < len(self._messages):
            self._last = len(self._messages)
            self._first = max(0, self._last - OPENED)
            await self._mount_window()
        self.follow()

    # --- selection --------------------------------------------------------------------------------

    async def step(self, direction: int) -> bool:
        """Move the selection up (-1) or down (1); from none, to the newest. False past the last message."""
        ids = [m.id for m in self._messages]
        if not ids:
            return False
        chosen = self._selected
        target = len(ids) - 1 if chosen not in ids else ids.index(chosen) + direction
        if target >= len(ids):
            return False
        if target < 0:
            await self._reach_top()
            return True
        await self.reveal(ids[target])
        return True

    async def reveal(self, message: MessageId) -> bool:
        """Select a loaded message and bring it into view. False when it is not loaded."""
        index = next((i for i, m in enumerate(self._messages) if m.id == message), None)
        if index is None:
            return False
        if not self._first <= index < self._last:
            if index == self._first - 1:
                await self._move_window(-STEP)
            else:
                self._first = max(0, index - OPENED // 2)
                self._last = min(len(self._messages), self._first + OPENED)
                await self._mount_window()
        self._select(message)
        if (view := self.view(message)) is not None:
            self.bring(view)
        return True

    def deselect(self) -> None:
        """Select nothing."""
        self._select(None)

    def _select(self, message: MessageId | None) -> None:
        if message == self._selected:
            return
        self._selected = message
        for view in self.mounted:
            view.set_class(view.message.id == message, "-selected")
        self.post_message(self.Selected(self.selected))

    async def on_focus(self) -> None:
        """Coming here by Tab selects the newest message."""
        if self._selected is None:
            await self.step(-1)

    @on(MessageView.Clicked)
    def _clicked(self, event: MessageView.Clicked) -> None:
        event.stop()
        self._select(event.message)
        self.focus(scroll_visible=False)
