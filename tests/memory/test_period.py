"""The days that texts name, as seen from Friday 10 May 2024."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.period import Period, dated, period, periods
from memory.words import tokens

NOW = datetime(2024, 5, 10, 12).timestamp()


def day(month: int, number: int, year: int = 2024) -> tuple[str, str]:
    first = date(year, month, number)
    return first.isoformat(), date.fromordinal(first.toordinal() + 1).isoformat()


def days(text: str) -> list[tuple[str, str]]:
    return [(named.since.isoformat(), named.until.isoformat()) for named in periods(text, NOW)]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("I saw her last Tuesday.", day(5, 7)),
        ("What did I do on Friday?", day(5, 3)),
        ("I have the dentist on Friday, and a cold.", day(5, 10)),
        ("We will meet on Monday.", day(5, 13)),
        ("Next Tuesday is free.", day(5, 14)),
        ("Yesterday it rained. I stayed in.", day(5, 9)),
        ("what did we eat last night", day(5, 9)),
        ("Three days ago it broke.", day(5, 7)),
        ("In a couple of days it is over.", day(5, 12)),
        ("What happened on 7 May?", day(5, 7)),
        ("It was on the 3rd of March 2023.", day(3, 3, 2023)),
        ("on December 24th", day(12, 24, 2023)),
        ("She is coming on 3 June.", day(6, 3)),
        ("Born 2019-02-28.", day(2, 28, 2019)),
        ("Termin am 7.5.2024", day(5, 7)),
        ("am 3. Mai war es warm", day(5, 3)),
        ("Was war am Dienstag?", day(5, 7)),
        ("qu'avons-nous dit hier ?", day(5, 9)),
        ("昨天我去了医院", day(5, 9)),
        ("上周二去了医院", day(4, 30)),
        ("下周三要去看牙", day(5, 15)),
        ("星期二见了她", day(5, 7)),
        ("三天前坏了", day(5, 7)),
        ("5月7日发生了什么", day(5, 7)),
        ("去年十二月二十五号", day(12, 25, 2023)),
        ("2023年12月5日", day(12, 5, 2023)),
        ("last week", ("2024-04-29", "2024-05-06")),
        ("two weeks ago", ("2024-04-22", "2024-04-29")),
        ("the last 3 days", ("2024-05-07", "2024-05-11")),
        ("last weekend", ("2024-05-04", "2024-05-06")),
        ("vor zwei Wochen", ("2024-04-22", "2024-04-29")),
        ("上周", ("2024-04-29", "2024-05-06")),
        ("上上周", ("2024-04-22", "2024-04-29")),
        ("两周前", ("2024-04-22", "2024-04-29")),
        ("in March", ("2024-03-01", "2024-04-01")),
        ("in October", ("2023-10-01", "2023-11-01")),
        ("we will move in October", ("2024-10-01", "2024-11-01")),
        ("in March 2021", ("2021-03-01", "2021-04-01")),
        ("last month", ("2024-04-01", "2024-05-01")),
        ("six months ago", ("2023-11-01", "2023-12-01")),
        ("三月", ("2024-03-01", "2024-04-01")),
        ("上个月", ("2024-04-01", "2024-05-01")),
        ("去年三月", ("2023-03-01", "2023-04-01")),
        ("last year", ("2023-01-01", "2024-01-01")),
        ("去年", ("2023-01-01", "2024-01-01")),
        ("in 2019", ("2019-01-01", "2020-01-01")),
    ],
)
def test_a_time_is_understood_as_seen_from_the_day_it_was_named(text: str, named: tuple[str, str]) -> None:
    assert days(text) == [named]


@pytest.mark.parametrize(
    "text",
    [
        "What may I do?",
        "the march of time",
        "12个月",
        "Was haben wir hier gemacht?",
        "31 June",
        "version 1.5.1",
        "I have 3 cats and 12 fish.",
        "",
    ],
)
def test_what_is_no_time_names_none(text: str) -> None:
    assert days(text) == []


def test_each_time_of_a_text_is_found_the_longest_words_first() -> None:
    text = "I saw her last Tuesday. Two weeks ago she was ill, and the day before yesterday as well."
    assert days(text) == [day(5, 7), ("2024-04-22", "2024-04-29"), day(5, 8)]


@pytest.mark.parametrize(
    ("asked", "said", "found"),
    [
        ("on 7 May", "I saw her last Tuesday", True),
        ("last week", "on 2 May she was ill", True),
        ("in May", "I saw her last Tuesday", True),
        ("in April", "we fly next month", False),
        ("what will we do in June", "we fly next month", True),
        ("on 7 May", "I was ill last week", False),
        ("today", "nothing special", True),
        ("last year", "back in March 2023 it was cold", True),
    ],
)
def test_a_question_and_a_text_of_the_same_days_share_a_mark(asked: str, said: str, found: bool) -> None:
    when = period(asked, NOW)
    assert when is not None
    assert (not set(when.marks).isdisjoint(tokens(dated(said, NOW)))) is found


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(1, 4000))
def test_every_day_of_a_period_bears_one_of_its_marks(since: date, length: int) -> None:
    until = date.fromordinal(since.toordinal() + length)
    marks = set(Period(since, until, "").marks)
    assert len(marks) <= 40
    for offset in {0, length // 2, length - 1}:
        then = date.fromordinal(since.toordinal() + offset)
        own = tokens(dated("", datetime(then.year, then.month, then.day, 12).timestamp()))
        assert marks.intersection(own)


@given(st.text(max_size=80), st.text("0123456789月日年号天周前后上下in may./- agolstweknxdy", max_size=60))
def test_any_text_is_taken(one: str, other: str) -> None:
    assert dated(f"{one} {other}", NOW).startswith("Friday 10 May")
