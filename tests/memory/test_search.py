"""What comes first of several passages that all share something with a question."""

from __future__ import annotations

from collections.abc import Callable

from memory import Memory
from memory.types import Message

Turns = Callable[..., list[Message]]


def test_what_shares_only_a_questions_asking_words_comes_after_what_it_is_about(memory: Memory, turns: Turns) -> None:
    memory.remember(turns(["图书馆有一辆自行车，来自城南旧货市场。", "好。"]))
    memory.remember(turns(["他问这把伞是在哪里买的，又问这双鞋是在哪里买的。", "嗯。"], "chat-2"))
    best = memory.search("图书馆的自行车是在哪里买的？", 2)[0].passage
    assert best.text == "图书馆有一辆自行车，来自城南旧货市场。"
