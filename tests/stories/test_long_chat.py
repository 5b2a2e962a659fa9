"""A fact told early, thirty turns later gone from the window, brought back by recall."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.store.types import MessageStatus
from tests.stories.people import at_the_desk

FACT = "Please remember this: the code of my bicycle lock is 4719."
QUESTION = "What is the code of my bicycle lock?"
SMALL_TALK = [
    "Name a colour of the rainbow.",
    "What is the capital of Spain?",
    "How many legs does a spider have?",
    "Name a fruit that is yellow.",
    "What do bees make?",
    "Which planet is closest to the sun?",
    "Name an animal that lives in the sea.",
    "What is the opposite of hot?",
    "Which season comes after winter?",
    "Name a musical instrument with strings.",
    "What is the capital of Japan?",
    "How many days are in a week?",
    "Name a vegetable that is green.",
    "What do cows drink?",
    "Which ocean is the largest?",
]


@pytest.mark.slow
async def test_a_fact_from_thirty_turns_ago_comes_back(tmp_path: Path) -> None:
    options: dict[str, object] = {"window_tokens": 512, "max_tokens": 48}
    async with at_the_desk(tmp_path, **options) as person:
        chat = (await person.desk.new_chat()).chat.id
        told = await person.ask(chat, FACT)
        quota = person.window.quota_bytes if person.window else 0
        for turn in range(30):
            answer = await person.ask(chat, SMALL_TALK[turn % len(SMALL_TALK)])
            assert answer.status is MessageStatus.COMPLETE
            assert person.window is not None
            assert person.window.quota_bytes == quota
            assert person.window.visible_tokens <= 512
        path = (await person.desk.open_chat(chat)).messages
        fact = next(m for m in await person.desk.earlier_messages(chat, path[0].id, 50) if m.text == FACT)
        assert not person.sees(fact)
        assert not person.sees(told)
        assert person.window.evicted_tokens > 0
        assert person.window.position > 512

        answer = await person.ask(chat, QUESTION)
        recalled = person.recalls[-1]
        assert any("4719" in passage.text and passage.message == fact.id for passage in recalled.passages)
        question = (await person.desk.open_chat(chat)).messages[-2]
        assert "4719" in question.block
        assert "4719" in answer.text, (question.block, answer.text)
        cited = [p for p in answer.passages if p.label in answer.citations]
        assert any("4719" in p.text for p in cited)

    async with at_the_desk(tmp_path, recall="off", **options) as person:
        fork = await person.desk.fork(chat, path[-1].id)
        answer = await person.ask(fork.chat.id, QUESTION)
        assert "4719" not in answer.text
