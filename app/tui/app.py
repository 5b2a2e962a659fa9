"""The Textual application: wiring only."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from app.actions import ACTIONS, BY_ID, ActionId
from app.events import Event
from app.ids import ChatId
from app.ports import DeskPort
from app.tui.bindings import key_words
from app.tui.chat_work import ChatWork
from app.tui.live import LiveAnswers
from app.tui.screens.chat import ChatScreen
from app.tui.work import start


class AiosChatApp(App[None]):
    """Shows a desk, made when the first frame is out. Opens `chat`, or a new one; closes the desk when it ends."""

    TITLE = "aios-chat"
    # In the corner where nobody writes: below, they lie over the prompt, the queue and the chips.
    CSS = "ToastRack { dock: top; align: right top; margin: 1 0 0 0; }"
    ENABLE_COMMAND_PALETTE = True
    # Textual has Ctrl+Q from the start; it is bound again to stand in the footer, and to work over any dialog.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(BY_ID[ActionId.QUIT].keys), "quit", BY_ID[ActionId.QUIT].footer, priority=True)
    ]

    def __init__(
        self, make_desk: Callable[[], DeskPort], chat: ChatId | None = None, *, theme: str = "textual-dark"
    ) -> None:
        super().__init__()
        self._make_desk = make_desk
        self._desk: DeskPort | None = None
        self._chat = chat
        self._live = LiveAnswers()
        self._chat_screen: ChatScreen | None = None
        self.theme = theme

    def on_mount(self) -> None:
        """Show the chat; make the desk only when the first frame is out."""
        work = ChatWork(self._live)
        self._chat_screen = ChatScreen(work)
        self.push_screen(self._chat_screen)
        self._quit_on_signals()
        self.call_after_refresh(self._begin, work)

    def _begin(self, work: ChatWork) -> None:
        self._desk = desk = self._make_desk()
        desk.subscribe(self._hear)
        gc.enable()  # the imports are done (see app/__main__.py)
        if self._chat_screen is not None:
            start(self._chat_screen, work.begin(desk, self._chat), "open")

    def _hear(self, event: Event) -> None:
        """The desk's listener: keeps the texts of running answers and passes the event to the screen."""
        self._live.follow(event)
        if self._chat_screen is not None and self.is_running:
            self._chat_screen.post_message(ChatScreen.Happened(event))

    def _quit_on_signals(self) -> None:
        # A closed terminal or a plain kill: partial answers are kept and the terminal is restored.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, lambda: self.call_later(self.action_quit))
            except (NotImplementedError, RuntimeError, ValueError):
                return  # not the main thread, or a platform without them

    def on_paste(self, event: events.Paste) -> None:
        """A drop while no widget has the focus: terminals in the background take drops too."""
        if self.screen is self._chat_screen and self._chat_screen is not None:
            self._chat_screen.take_paste(event.text)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: every action of the table, and Textual's theme and keys."""
        chat = self._chat_screen
        if chat is not None and screen is chat:
            for action in ACTIONS:
                keys = f" ({key_words(action)})" if action.keys else ""
                run = partial(self.call_later, chat.commands.run, action.id)
                yield SystemCommand(f"{action.title}{keys}", f"{action.group.value}: {action.help}", run)
        yield from (c for c in super().get_system_commands(screen) if c.title != "Quit")

    async def action_quit(self) -> None:
        """Keep partial answers, close the desk, leave. A busy memory may take some seconds to put its files away."""
        if self._desk is not None:
            self.notify("Closing; what is written is kept.", timeout=60, markup=False)
        await self._close()
        self.exit()

    async def _close(self) -> None:
        desk, self._desk = self._desk, None
        if desk is not None:
            await desk.close()

    async def on_unmount(self) -> None:
        """However the program ends, the desk is closed."""
        await self._close()
