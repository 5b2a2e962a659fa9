"""A chat grows past its window; what left it is summed up while nobody asks, and says what was talked about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.events import Event, SummingUp
from tests.stories.people import at_the_desk

LONG_TALK = [
    f"Let us plan the {thing} for the summer party in the garden behind the old mill. {decided} What else is there to "
    f"think of when it comes to the {thing}, if some thirty guests come and it may rain in the evening?"
    for thing, decided in (
        ("tents", "We decided to rent two white tents from Berger for Saturday."),
        ("music", "We decided that Ines plays the accordion at eight."),
        ("food", "We decided to grill trout and to serve potato salad with it."),
        ("lamps", "We decided to hang forty paper lamps between the trees."),
        ("drinks", "We decided to buy cider from the Dabinett orchard."),
        ("invitations", "We decided to print the invitations on green paper."),
        ("seats", "We decided to borrow ten benches from the fire brigade."),
        ("games", "We decided on a tug of war over the stream."),
    )
]


@pytest.mark.slow
async def test_what_left_the_window_is_summed_up_and_answers_what_was_talked_about(tmp_path: Path) -> None:
    async with at_the_desk(tmp_path, window_tokens=512, max_tokens=40) as person:
        summed_up = asyncio.Event()

        def hear(event: Event) -> None:
            if event == SummingUp(None):
                summed_up.set()

        person.desk.subscribe(hear)
        chat = (await person.desk.new_chat()).chat.id
        for text in LONG_TALK:
            await person.ask(chat, text)
        async with asyncio.timeout(600):
            while not (await person.desk.memory.size()).digests:
                summed_up.clear()
                await summed_up.wait()
        other = (await person.desk.new_chat()).chat.id
        await person.ask(other, "What did we talk about today?")
        recalled = person.recalls[-1]
        digests = [passage for passage in recalled.passages if passage.turns]
        assert any("two white tents from Berger" in passage.text for passage in digests)
        assert all(passage.maker for passage in digests)
        view = await person.desk.open_chat(chat)
        await person.desk.memory.forget_message(digests[0].turns[0])
        await person.desk.indexed()
        assert "Berger" not in "".join(p.text for p in (await person.desk.search("two white tents Berger")).passages)
        assert "Berger" not in (await person.desk.export(chat)) + (await person.desk.export(other)), view
