"""Of two statements that cannot both hold now, the later one first; the others stay where they are."""

from __future__ import annotations

from datetime import datetime

import pytest

from memory import Memory
from memory.types import Message, RecallRequest, SourceId

OTHERS = (
    "The lighthouse tour starts at nine.",
    "I am allergic to hazelnuts.",
    "Anton repairs old radios in his garage.",
    "我的猫叫咪咪，今年三岁",
    "火车从北京南站出发",
)


def said(memory: Memory, *texts: tuple[str, str]) -> None:
    """Remember what the person said, each in a chat of its own on its day."""
    memory.remember(
        [
            Message(
                SourceId(f"chat-{n}"), "A chat", f"m-{n}", None, "user", text, datetime.fromisoformat(day).timestamp()
            )
            for n, (day, text) in enumerate(texts)
        ]
    )


def found(memory: Memory, question: str) -> tuple[list[str], str]:
    recall = memory.recall(
        RecallRequest(question, SourceId("asking"), budget_tokens=400), lambda text: len(text.encode()) // 4 + 1
    )
    return [hit.passage.text for hit in recall.hits], recall.block


CHANGED = [
    (
        "What is my favourite colour?",
        "My favourite colour is blue.",
        "My favourite colour is green now.",
    ),
    (
        "What is my address?",
        "My address is 12 Elm Street, flat 3.",
        "I have moved, my new address is 5 Oak Road.",
    ),
    (
        "How much is the rent?",
        "The rent of the studio is 740 euros a month.",
        "They raised the rent of the studio to 810 euros a month.",
    ),
    (
        "What is the code of my locker?",
        "The code of my locker at the swimming pool next to the old station is 4417, and it sticks.",
        "The code of my locker at the swimming pool next to the old station is 9052, and it sticks.",
    ),
    (
        "Where are we going in our summer holidays?",
        "Our plan for the summer holidays is two weeks in Norway.",
        "We changed our plan for the summer holidays, it is Slovenia instead.",
    ),
    ("How old is my dog Bruno?", "My dog Bruno is four years old.", "My dog Bruno is five years old."),
    ("我最喜欢的颜色是什么？", "我最喜欢的颜色是蓝色", "我现在最喜欢的颜色是绿色"),
    ("我的地址是什么？", "我的地址是建国路12号", "我搬家了，我的新地址是人民路5号"),
]


@pytest.mark.parametrize(("question", "before", "after"), CHANGED)
@pytest.mark.parametrize("told_backwards", [False, True], ids=["in order", "backwards"])
def test_the_later_of_two_contradicting_statements_comes_first(
    memory: Memory, question: str, before: str, after: str, told_backwards: bool
) -> None:
    """Whichever of the two texts is the later one: it is their time that counts and not their words."""
    first, second = (after, before) if told_backwards else (before, after)
    said(memory, ("2024-03-02", first), ("2024-06-20", second), *(("2024-05-01", text) for text in OTHERS))
    texts, block = found(memory, question)
    assert texts[0] == second
    assert "2024-06-20" in block
    if "4417" not in first + second:  # almost the same words are said once only
        assert first in texts
        assert "2024-03-02" in block


def test_what_is_said_of_another_thing_stays_behind(memory: Memory) -> None:
    said(
        memory,
        ("2024-03-02", "My sister's birthday is on the 4th of July."),
        ("2024-06-20", "For my sister's wedding we need a cake with almonds."),
    )
    texts, _ = found(memory, "When is my sister's birthday?")
    assert "birthday" in texts[0]


def test_one_who_asks_for_how_it_was_gets_that_first(memory: Memory) -> None:
    said(memory, ("2024-03-02", "My address is 12 Elm Street."), ("2024-06-20", "My new address is in the Oak Road 5."))
    texts, _ = found(memory, "What was my old address before, in Elm Street?")
    assert "Elm" in texts[0]


def test_of_three_the_newest_comes_first(memory: Memory) -> None:
    days = ("2024-02-01", "2024-04-01", "2024-06-01")
    colours = ("blue", "green", "red")
    told = [(day, f"My favourite colour is {colour}.") for day, colour in zip(days, colours, strict=True)]
    said(memory, *told, *(("2024-05-01", text) for text in OTHERS))
    texts, _ = found(memory, "What is my favourite colour?")
    assert [text.split()[-1] for text in texts[:3]] == ["red.", "green.", "blue."]
