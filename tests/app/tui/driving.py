"""Driving the app like a person: wait on conditions, never on time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from scripted import ScriptedDesk
from textual import events
from textual.pilot import Pilot
from textual.widgets import Static

from app.ids import ChatId
from app.tui.app import AiosChatApp
from app.tui.screens.chat import ChatScreen

DEADLINE = 20.0


async def wait_until(pilot: Pilot[None], condition: Callable[[], object], what: str = "") -> None:
    """Let the app run until the condition holds; fail after a generous deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never came true: {what or condition}")
        await pilot.pause(0.01)


class Person:
    """Someone in front of the app."""

    def __init__(self, desk: ScriptedDesk, app: AiosChatApp, pilot: Pilot[None]) -> None:
        self.desk, self.app, self.pilot = desk, app, pilot

    @property
    def screen(self) -> ChatScreen:
        """The chat screen, whatever lies over it."""
        return next(s for s in self.app.screen_stack if isinstance(s, ChatScreen))

    @property
    def chat(self) -> ChatId:
        """The open chat."""
        assert self.screen.work.chat is not None
        return self.screen.work.chat.id

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait on a condition."""
        await wait_until(self.pilot, condition, what)

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await self.pilot.press(*keys)

    async def write(self, text: str) -> None:
        """Put text into the prompt at once and send it."""
        self.screen.prompt.focus()
        self.screen.prompt.insert(text)
        await self.pilot.press("enter")

    async def paste(self, text: str) -> None:
        """Paste as a terminal does: to the app, which gives it to what has the focus."""
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()

    def said(self, *call: object) -> bool:
        """Whether the desk was asked this."""
        return call in self.desk.calls

    @property
    def notices(self) -> list[str]:
        """What was told in the corner."""
        return [n.message for n in self.app._notifications]

    def text(self, selector: str) -> str:
        """A static's text on the top screen."""
        return shown(self.app.screen.query_one(selector, Static))


def shown(widget: Static) -> str:
    """What a static shows."""
    return str(widget.visual)


@asynccontextmanager
async def person(
    desk: ScriptedDesk, chat: ChatId | None = None, size: tuple[int, int] = (110, 26)
) -> AsyncIterator[Person]:
    """The app, running, with its chat opened."""
    app = AiosChatApp(lambda: desk, chat)
    async with app.run_test(size=size) as pilot:
        await wait_until(pilot, lambda: any(isinstance(s, ChatScreen) for s in app.screen_stack))
        someone = Person(desk, app, pilot)
        await wait_until(pilot, lambda: someone.screen.work.chat is not None or desk.start_error)
        if chat is not None and chat in desk.rows:
            await wait_until(pilot, lambda: len(someone.screen.transcript.messages) > 0)
        await pilot.pause()
        yield someone
