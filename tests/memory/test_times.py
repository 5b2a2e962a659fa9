"""Questions about days, through the whole memory: the days are seen from when something was asked, or said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from memory import Memory
from memory.types import Message, Recall, RecallRequest, Scope, SourceId

ASKING = SourceId("asking")


def said(memory: Memory, *texts: tuple[str, str], chat: str = "told") -> None:
    """Remember what the person said, each on its day."""
    memory.remember(
        [
            Message(SourceId(chat), "A chat", f"{chat}-{n}", None, "user", text, at(day))
            for n, (day, text) in enumerate(texts)
        ]
    )


def at(day: str) -> float:
    return datetime.fromisoformat(f"{day}T12:00").timestamp()


def ask(memory: Memory, question: str, day: str, earlier: Sequence[str] = ()) -> Recall:
    request = RecallRequest(question, ASKING, asked=at(day), earlier=tuple(earlier), budget_tokens=400)
    return memory.recall(request, lambda text: len(text.encode()) // 4 + 1)


def texts(recall: Recall) -> list[str]:
    return [hit.passage.text for hit in recall.hits]


LUNCHES = (
    ("2024-05-06", "Had ramen with Jun for lunch."),
    ("2024-05-07", "Had dumplings with Priya for lunch."),
    ("2024-05-08", "Had a falafel wrap for lunch, alone."),
    ("2024-04-12", "Had pizza with the whole team for lunch."),
    ("2024-03-05", "Had goulash with my sister for lunch."),
    ("2023-05-07", "Had sushi with Tom for lunch."),
)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What did I have for lunch last Tuesday?", "dumplings"),
        ("What did I have for lunch two days ago?", "falafel"),
        ("What did I have for lunch in March?", "goulash"),
        ("What did I have for lunch on 6 May?", "ramen"),
        ("What did I have for lunch last month?", "pizza"),
        ("What did I have for lunch last year?", "sushi"),
        ("What did I have for lunch on 7 May 2023?", "sushi"),
    ],
)
def test_of_alike_passages_that_of_the_named_day_comes_first(memory: Memory, question: str, first: str) -> None:
    said(memory, *LUNCHES)
    found = texts(ask(memory, question, "2024-05-10"))
    assert first in found[0]
    assert len(found) > 1


CHINESE_LUNCHES = (
    ("2024-04-30", "午饭和小王吃了拉面"),
    ("2024-05-09", "午饭和妈妈吃了饺子"),
    ("2024-03-12", "午饭吃了火锅，太辣"),
    ("2023-08-02", "午饭和同事吃了烤鸭"),
)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("我上周午饭吃了什么？", "拉面"),
        ("我昨天午饭吃了什么？", "饺子"),
        ("我三月午饭吃了什么？", "火锅"),
        ("我去年午饭吃了什么？", "烤鸭"),
    ],
)
def test_the_same_in_chinese(memory: Memory, question: str, first: str) -> None:
    said(memory, *CHINESE_LUNCHES)
    assert first in texts(ask(memory, question, "2024-05-10"))[0]


DAYS = (
    ("2024-05-10", "I saw Marta last Tuesday, her shop is closing."),
    ("2024-05-02", "The plumber fixed the boiler."),
    ("2024-05-08", "We are flying to Oslo on 3 June."),
    ("2024-05-09", "上周二我去医院打了疫苗"),
    ("2024-04-20", "The sourdough starter died."),
)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What happened on 7 May?", "Marta"),
        ("What did I do on the second of May?", ""),
        ("What did I do on 2 May?", "boiler"),
        ("What is planned for 3 June?", "Oslo"),
        ("What happened last month?", "sourdough"),
        ("4月30日发生了什么？", "疫苗"),
        ("What did I do three weeks ago?", "sourdough"),
    ],
)
def test_a_question_that_is_nothing_but_a_time_brings_what_is_of_it(memory: Memory, question: str, first: str) -> None:
    """What was said on those days, and what was said of them on other days."""
    said(memory, *DAYS)
    recall = ask(memory, question, "2024-05-12")
    assert (first in texts(recall)[0]) if first else not recall.hits


def test_what_is_asked_about_the_day_itself_is_small_talk(memory: Memory) -> None:
    said(memory, *DAYS, ("2024-05-12", "The hedgehog is back."))
    for question in ("What day is it today?", "What's up today?", "How is it going this evening?"):
        assert ask(memory, question, "2024-05-12").decision.scope is Scope.NOTHING


def test_a_day_is_seen_from_when_the_question_was_asked(memory: Memory) -> None:
    said(memory, *LUNCHES)
    question = "What did I have for lunch yesterday?"
    assert "ramen" in texts(ask(memory, question, "2024-05-07"))[0]
    assert "dumplings" in texts(ask(memory, question, "2024-05-08"))[0]


def test_a_time_is_a_wish_and_no_wall(memory: Memory) -> None:
    """People remember days wrongly: what fits otherwise still comes."""
    said(memory, ("2024-05-02", "The plumber fixed the boiler, it cost 180 euros."), *LUNCHES)
    assert "180" in ask(memory, "What did the plumber cost me last Tuesday?", "2024-05-10").block


def test_the_text_is_shown_as_written_with_its_own_date(memory: Memory) -> None:
    said(memory, *DAYS)
    block = ask(memory, "What happened on 7 May?", "2024-05-12").block
    assert "I saw Marta last Tuesday, her shop is closing. (from the user, 2024-05-10)" in block


def test_talks_are_those_of_the_named_day(memory: Memory) -> None:
    said(memory, *DAYS)
    recall = ask(memory, "What did we talk about last Wednesday?", "2024-05-12")
    assert recall.decision.scope is Scope.TALKS
    assert [text[:13] for text in texts(recall)] == ["We are flying"]
