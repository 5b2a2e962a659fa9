from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.loops import LONGEST_PERIOD, NONE, PROSE_TIMES, PROSE_TOKENS, Repetition, RepetitionFinder, is_prose

# Words and marks as tokens, as a vocabulary of a few ten thousand would cut them.


def tokens_of(text: str) -> list[str]:
    import re

    return re.findall(r" ?\w+|\n+| ?[^\w\s]{1,4}|\s", text)


def ends_at(text: str, *, code: bool = False) -> int | None:
    """The token at which an answer with this text is ended as a loop; None when it is not."""
    finder, ids, pieces = RepetitionFinder(), dict[str, int](), tokens_of(text)
    for number, piece in enumerate(pieces):
        found = finder.push(ids.setdefault(piece, len(ids)))
        if found is not NONE and found.is_loop("".join(pieces[number - found.period + 1 : number + 1]), code=code):
            return number
    return None


SENTENCE = "The sea was calm that day, and the old keeper went down to the shore to look for his boat again. "
PARAGRAPH = SENTENCE + "He had painted it blue in spring. " + "Nobody in the village had seen it since the storm. " * 2

LOOPS = {
    "a word": "Yes. " + "very " * 400,
    "a sentence": "Once upon a time. " + SENTENCE * 40,
    "a paragraph": PARAGRAPH * 12,
    "a Chinese sentence": "今天 天气 很好 我们 去 公园 " * 60,
    "a list item": "1. Apples\n" + "- Add the flour and stir until smooth.\n" * 40,
    "a passage as long as the longest": "".join(f"word{i} " for i in range(LONGEST_PERIOD)) * 5,
    "a rule without end": "-" * 8000,
    "emoji without end": "😀" * 4000,
    "line breaks and digits without end": "0\n" * 2000,
}

LEGITIMATE = {
    "a Markdown table": "| name | age |\n|------|-----|\n" + "| --- | --- | --- | --- |\n" * 30,
    "a table rule": "=" * 800 + "\n" + "-" * 800,
    "a matrix of zeros": ("0 " * 16 + "\n") * 16,
    "a checklist": "- [ ] \n" * 60,
    "a refrain": ("Row, row, row your boat, gently down the stream.\n" * 3 + "Merrily we go.\n") * 2,
    "said five times, as asked": SENTENCE * 5,
    "a form": "Name: ________________  Date: ________________\n" * 12,
    "an XML list": "".join(f"<item><name>n{i}</name><price>{i}</price></item>\n" for i in range(80)),
    "numbered lines": "".join(f"{i}. The square of {i} is {i * i}.\n" for i in range(100)),
    "a chess board": ("🟩⬛" * 4 + "\n" + "⬛🟩" * 4 + "\n") * 12,
}

CODE = {
    "a lookup table": "    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,\n" * 16,
    "closing tags": "      <tr><td></td><td></td><td></td></tr>\n" * 12,
    "calls": '    print("hello world")\n' * 30,
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_a_loop_is_ended(text: str) -> None:
    end = ends_at(text)
    assert end is not None
    assert end < len(tokens_of(text)) - 1


@pytest.mark.parametrize("text", LEGITIMATE.values(), ids=LEGITIMATE)
def test_what_repeats_for_a_reason_goes_on(text: str) -> None:
    assert len(tokens_of(text)) > 30
    assert ends_at(text) is None


@pytest.mark.parametrize("text", CODE.values(), ids=CODE)
def test_a_code_listing_goes_on(text: str) -> None:
    assert ends_at(text, code=True) is None
    assert ends_at(text * 40, code=True) is not None


def test_prose_is_mostly_letters() -> None:
    assert all(map(is_prose, ["ha ha", "日本語。", "été 1", "- Add milk.\n"]))
    assert not any(map(is_prose, ["", " \n", "| --- |", "0x00,", "____ a", "👍👍"]))


def plain_search(ids: list[int]) -> Repetition:
    """By definition: the shortest period of which enough stands at the end."""
    for period in range(1, LONGEST_PERIOD + 1):
        span = period
        while span < len(ids) and ids[-span - 1] == ids[-span - 1 + period]:
            span += 1
        if span <= len(ids) and span >= max(PROSE_TOKENS, PROSE_TIMES * period):
            return Repetition(period, span)
    return NONE


@given(
    st.lists(st.integers(0, 2), max_size=20),
    st.lists(st.integers(0, 2), min_size=1, max_size=90),
    st.integers(200, 420),
    st.lists(st.integers(0, 2), max_size=2),
)
def test_the_finder_finds_what_is_there(start: list[int], passage: list[int], length: int, end: list[int]) -> None:
    ids = start + (passage * length)[:length] + end
    finder = RepetitionFinder()
    for token in ids:
        found = finder.push(token)
    assert found == plain_search(ids)
