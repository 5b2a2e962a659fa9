"""A pinned fact stays in the window while the chat goes on for more than a windowful, and is quoted from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.ports import DeskError
from tests.stories.people import at_the_desk
from tests.stories.test_long_chat import SMALL_TALK

FACT = "Remember: the password of the garden gate is marmalade."
QUESTION = "What is the password of the garden gate?"


@pytest.mark.slow
async def test_a_pinned_fact_is_answered_from_the_window_long_after(tmp_path: Path) -> None:
    options: dict[str, object] = {"window_tokens": 384, "max_tokens": 24, "recall": "off"}
    async with at_the_desk(tmp_path, **options) as person:
        chat = (await person.desk.new_chat()).chat.id
        noted = await person.ask(chat, FACT)
        fact = (await person.desk.open_chat(chat)).messages[0]
        assert (await person.desk.pin(chat, fact.id)).pinned
        turns = 0
        while person.window is None or person.window.evicted_tokens < person.window.ring_tokens:
            await person.ask(chat, SMALL_TALK[turns % len(SMALL_TALK)])
            turns += 1
            assert turns < 40
            assert person.sees(fact)
        assert not person.sees(noted)
        answer = await person.ask(chat, QUESTION)
        assert "marmalade" in answer.text.lower()

        long = await person.ask(chat, "Repeat: " + "one two three four five six seven eight nine ten " * 20)
        question = next(m for m in (await person.desk.open_chat(chat)).messages if m.id == long.parent)
        with pytest.raises(DeskError, match=r"what is pinned takes .* of a window of 384"):
            await person.desk.pin(chat, question.id)
        assert [m.id for m in await person.desk.pinned(chat)] == [fact.id]
