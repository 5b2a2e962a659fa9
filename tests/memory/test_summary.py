from __future__ import annotations

import pytest

from memory.summary import Turn, digest, extract, fault, question

KITCHEN = (
    Turn("user", "We need to pick the paint for the kitchen. I'd like something light."),
    Turn("assistant", "You could choose pale green, cream or white."),
    Turn("user", "Let's take the pale green, Farrow number 75. Two litres should do."),
    Turn("assistant", "Two litres cover about 24 square metres."),
    Turn("user", "Good. Anna will buy it on Saturday. We decided against wallpaper because of the steam."),
)
HANGZHOU = (
    Turn("user", "我们周末去杭州，帮我想想住哪里。"),
    Turn("assistant", "可以住在西湖边，交通方便。"),
    Turn("user", "预算每晚五百，最后就订湖滨那家吧，两晚。"),
)


@pytest.mark.parametrize(
    ("summary", "named"),
    [
        ("", "short"),
        ("Paint.", "short"),
        ("User: I want paint for the kitchen.\nAssistant: Pale green is light.", "goes on"),
        ("They chose pale green for the kitchen, they chose pale green for the kitchen, and Anna buys it.", "repeats"),
        ("They visited a museum in the mountains and swam across the lake at night.", "words"),
        ("They decided to take pale green paint, Farrow number 57, for the kitchen.", "number"),
        ("They decided to paint the kitchen pale green and Peter will buy the litres.", "nobody named"),
        ("Two litres cover about 24 square metres.", "line of the talk"),
        ("They decided to take wallpaper, which has steam 75, and the paint.", "joins"),
        ("paint " * 200, "long"),
    ],
)
def test_a_summary_that_cannot_be_believed_is_refused_with_the_reason(summary: str, named: str) -> None:
    assert named in fault(summary, KITCHEN)


@pytest.mark.parametrize(
    ("summary", "talk"),
    [
        ("They talked about paint for the kitchen and decided on pale green; Anna will buy two litres.", KITCHEN),
        ("The user and the assistant discussed light paint and decided against wallpaper.", KITCHEN),
        ("周末去杭州住湖滨的酒店，两晚，预算每晚五百。", HANGZHOU),
    ],
)
def test_a_summary_in_the_words_of_the_talk_is_believed(summary: str, talk: tuple[Turn, ...]) -> None:
    assert fault(summary, talk) == ""
    kept = digest(summary, talk)
    assert kept.startswith(summary)
    assert extract(talk) in kept


def test_an_extract_holds_what_was_decided_word_for_word() -> None:
    told = extract(KITCHEN)
    assert "Let's take the pale green, Farrow number 75." in told
    assert "We decided against wallpaper because of the steam." in told
    assert told.index("We need to pick the paint") < told.index("Let's take")
    assert "最后就订湖滨那家吧" in extract(HANGZHOU)


@pytest.mark.parametrize("length", [1, 30, 400])
def test_an_extract_of_long_turns_stays_short_and_is_never_empty(length: int) -> None:
    turns = [Turn("user", "We decided to buy lamp number one. " * length), Turn("assistant", "Fine. " * length)]
    assert 0 < len(extract(turns)) <= 600
    assert extract([Turn("assistant", "ok " * 3 * length)])


def test_the_model_reads_the_beginning_of_every_turn() -> None:
    asked = question([Turn("user", "What is lava?"), Turn("assistant", "Molten rock. " + "It flows. " * 200)])
    assert "User: What is lava?\nAssistant: Molten rock." in asked
    assert len(asked) < 800
