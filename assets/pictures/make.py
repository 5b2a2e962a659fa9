"""Makes the README's picture from the real program: `python assets/pictures/make.py`.

The real screen, engine and memory, on a data folder of its own; nothing in the picture is drawn by hand.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from app.desk import Desk
from app.events import AnswerDone, Event
from app.paths import Paths
from app.settings import load_settings
from app.tui.app import AiosChatApp

HERE = Path(__file__).parent
REPORT = """# Harbour museum, second quarter

The museum counted 18,452 visitors. The director, Petra Lindqvist, thanks the volunteers.

The new exhibition about lighthouses opens on the fourth of October. Entrance costs nine euros for adults.
"""
TALK = [
    "Please remember: my sister Ida arrives on Friday at the central station, platform 9.",
    "What do bees make?",
    "What is the capital of Spain?",
    "Write three sentences about the sea in winter.",
    "How many legs does a spider have?",
    "Name a fruit that is yellow.",
    "Write three sentences about old lighthouses.",
    "Which planet is the largest?",
]
LAST = ["When does the exhibition about lighthouses open?", "On which platform does my sister Ida arrive?"]


async def main() -> None:
    """Talk past a small window, drop a file, ask about both, and save what is on the screen."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(Path(folder) / "home", Path(folder) / "settings.toml")
        paths.data.mkdir()
        # The models of this person, so that nothing is fetched a second time.
        paths.models.symlink_to(Paths.default().create().models)
        note = Path(folder) / "harbour-museum.md"
        note.write_text(REPORT)
        settings = load_settings(None, {"window_tokens": 384, "temperature": 0, "max_tokens": 64})
        desk = Desk(settings, paths.create())
        answers: asyncio.Queue[AnswerDone] = asyncio.Queue()

        def hear(event: Event) -> None:
            if isinstance(event, AnswerDone):
                answers.put_nowait(event)

        desk.subscribe(hear)
        app = AiosChatApp(lambda: desk)
        async with app.run_test(size=(120, 36)) as pilot:
            await pilot.pause(1)
            await desk.model_up()
            await desk.memory_up()
            for question in [*TALK, f"/file {note}", *LAST]:
                await pilot.press(*[{" ": "space"}.get(key, key) for key in question], "enter")
                if question.startswith("/"):
                    await pilot.pause(1)
                    await desk.indexed()
                    continue
                done = await answers.get()
                print(f"{question} -> {done.message.text} {done.message.citations}")
                await desk.indexed()
                await pilot.pause(1)
            await pilot.pause(2)
            app.save_screenshot("chat.svg", path=str(HERE))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
