"""Pictures of the key screens. After a wanted change: pytest tests/app/tui/test_snapshots.py --snapshot-update."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from driving import Person, wait_until
from scripted import ScriptedDesk, passage
from textual.pilot import Pilot
from textual.widgets import OptionList

from app.events import JobPhase
from app.host.wire import SourceKind
from app.tui.app import AiosChatApp
from app.tui.screens.chat import ChatScreen
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.help import HelpScreen
from app.tui.widgets.sources import PassageList

ANSWER = """The turbine hall stands on the **north bank** [1]. It was moved there in 1931 because:

- the south bank flooded in 1929, and
- the rail line ends at the north bank [2].

```python
def hall(year: int) -> str:
    return "north" if year >= 1931 else "south"
```
"""


def power_station() -> tuple[ScriptedDesk, AiosChatApp]:
    """A chat with a quote, a file, an answer with sources, a star, evicted messages and a half-full window."""
    desk = ScriptedDesk()
    desk.add_chat("[/b]Trip to Åland 旅行", ["When do the ferries leave?", "At nine."])
    chat = desk.add_chat(
        "The power station",
        [
            "When was the dam finished?",
            "The dam was finished in 1926, three years late.",
            "Who drew the turbine hall?",
            "Ada Lindqvist drew it; her plans are in the town archive.",
            "Where does the hall stand, and why there?",
            ANSWER,
        ],
    )
    m = [message.id for message in desk.path(chat)]
    found = (
        passage("1"),
        passage(
            "2",
            source_kind=SourceKind.CHAT,
            title="The power station",
            page=None,
            score=0.64,
            text="The rail line ends at the north bank, so the heavy parts came by train.",
        ),
    )
    desk.edit(m[3], starred=True)
    desk.edit(m[4], quote=m[3], passages=found)
    desk.edit(m[5], passages=found, citations=("1", "2"))
    desk.window(chat, {m[2]: 14, m[3]: 30, m[4]: 150, m[5]: 130})
    return desk, AiosChatApp(lambda: desk, chat)


async def ready(pilot: Pilot[None]) -> Person:
    app = pilot.app
    assert isinstance(app, AiosChatApp)
    await wait_until(pilot, lambda: isinstance(app.screen, ChatScreen))
    someone = Person(app._make_desk(), app, pilot)  # type: ignore[arg-type]
    await someone.until(lambda: len(someone.screen.transcript.mounted) == 6)
    await someone.until(lambda: len(someone.screen.query_one(PassageList).passages) == 2)
    await someone.until(lambda: "SmolLM2" in someone.screen.query_one("#status").render().plain)
    return someone


async def settled(p: Person) -> None:
    transcript = p.screen.transcript
    await p.until(lambda: transcript.max_scroll_y == 0 or transcript.is_vertical_scroll_end)
    await p.pilot.pause()


async def dark(pilot: Pilot[None]) -> None:
    p = await ready(pilot)
    p.desk.job("notes.md", JobPhase.EMBEDDING, 3, 9)
    await p.until(lambda: p.screen.query_one("#activity").display)
    await settled(p)


async def light(pilot: Pilot[None]) -> None:
    pilot.app.theme = "textual-light"
    await dark(pilot)


async def selected(pilot: Pilot[None]) -> None:
    p = await ready(pilot)
    await p.press("ctrl+up", "up", "up")
    await p.until(lambda: (m := p.screen.transcript.selected) is not None and m.starred)
    await p.pilot.pause()


async def chats(pilot: Pilot[None]) -> None:
    p = await ready(pilot)
    await p.press("ctrl+l")
    await p.until(lambda: isinstance(p.app.screen, ChatsScreen))
    await p.until(lambda: p.app.screen.query_one(OptionList).option_count == 2)
    await p.pilot.pause()


async def help_(pilot: Pilot[None]) -> None:
    p = await ready(pilot)
    await p.press("f1")
    await p.until(lambda: isinstance(p.app.screen, HelpScreen))
    await p.pilot.pause()


@pytest.mark.parametrize(
    ("scene", "size"),
    [
        (dark, (120, 36)),
        (light, (120, 36)),
        (dark, (80, 24)),
        (selected, (120, 36)),
        (chats, (100, 30)),
        (help_, (100, 30)),
    ],
    ids=["dark", "light", "narrow", "selected", "chats", "help"],
)
def test_picture(
    snap_compare: Callable[..., bool],
    scene: Callable[[Pilot[None]], Awaitable[None]],
    size: tuple[int, int],
) -> None:
    _, app = power_station()
    assert snap_compare(app, terminal_size=size, run_before=scene)
