from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.recall.cite import cite
from memory.types import Passage, PassageId, Place, Source, SourceId, SourceKind


def passage(text: str, number: int = 1) -> Passage:
    source = Source(SourceId("d"), SourceKind.DOCUMENT, "manual.pdf")
    return Passage(PassageId(str(number)), source, Place(page=number), number, 0.0, text)


PUMP = passage("The serial number of the pump is QX-7719. It was installed in 2019 by Harlow Engineering.", 1)
BIRDS = passage("Herons nest in tall trees near the water in early spring.", 2)


def test_marks_of_undelivered_passages_are_removed() -> None:
    answer, labels = cite("?", "It is blue [1], tall [7] and old 【3】.", [PUMP, BIRDS])
    assert answer == "It is blue [1], tall and old."
    assert labels == ("1",)


def test_several_numbers_in_one_mark() -> None:
    answer, labels = cite("?", "Both say so [1, 2, 9].", [PUMP, BIRDS])
    assert answer == "Both say so [1][2]."
    assert labels == ("1", "2")


def test_indices_in_code_are_no_marks() -> None:
    text = "Use `a[3]`:\n```python\nprint(a[9])\n```\n"
    assert cite("?", text, [PUMP])[0] == text


def test_an_unmarked_answer_is_attributed_by_what_the_question_did_not_hold() -> None:
    _, labels = cite("What is the serial number of the pump?", "The serial number is QX-7719.", [BIRDS, PUMP])
    assert labels == ("2",)


def test_words_of_the_question_prove_nothing() -> None:
    _, labels = cite("What is the serial number of the pump?", "I do not know the serial number.", [PUMP, BIRDS])
    assert labels == ()


def test_a_bare_name_is_enough() -> None:
    _, labels = cite("Who installed it?", "Harlow.", [BIRDS, PUMP])
    assert labels == ("2",)


def test_strongest_first() -> None:
    _, labels = cite("Tell me.", "Harlow Engineering, 2019, QX-7719; herons nest in tall trees.", [BIRDS, PUMP])
    assert labels == ("2", "1")


def test_chinese_answers_are_attributed() -> None:
    _, labels = cite("显存是多少？", "显存有二十四吉字节。", [BIRDS, passage("显卡的显存是二十四吉字节。", 3)])
    assert labels == ("2",)


@given(st.text())
def test_labels_name_delivered_passages_only(answer: str) -> None:
    cleaned, labels = cite("What?", answer, [PUMP, BIRDS])
    assert set(labels) <= {"1", "2"}
    assert len(cleaned) <= len(answer) * 2


def test_a_fact_and_the_turn_that_repeated_it_are_both_cited() -> None:
    told, repeated = passage("The code of my bicycle lock is 4719.", 1), passage("The code is 4719.", 2)
    _, labels = cite("What is the code of my bicycle lock?", "The answer is: 4719.", [told, repeated])
    assert labels == ("1", "2")


def test_what_every_passage_says_is_no_evidence() -> None:
    passages = [
        passage(f"The museum counted visitors in {month}.", n) for n, month in enumerate(["May", "June", "July"])
    ]
    _, labels = cite("What happened in August?", "The museum was closed.", passages)
    assert labels == ()


@pytest.mark.parametrize(
    ("answer", "cleaned"),
    [
        ('It says "was installed in 2019 by Harlow Engineering" [1].', None),
        ("It says “installed in 2019 … Harlow Engineering” [1].", None),
        ('It says "was installed in 2019 by Harlow Engineering" [2].', "[1]"),
        ('It says "was installed in 1999 by the navy itself" [1].', ""),
        ('It says "was installed in 1999 by the navy itself" [1][2].', ""),
        ('A "pump" is old [1].', None),
        ("手册说「泵的序列号是空的」[1]。", ""),
    ],
)
def test_what_is_quoted_stands_in_the_passage_or_loses_its_mark(answer: str, cleaned: str | None) -> None:
    given, labels = cite("?", answer, [PUMP, BIRDS])
    if cleaned is None:
        assert given == answer
        assert labels[0] == "1"
    else:
        bare = answer.replace(" [1]", "").replace("[1]", "").replace(" [2]", "").replace("[2]", "")
        assert given == (bare if not cleaned else bare.replace(".", f" {cleaned}."))


@pytest.mark.parametrize(
    ("answer", "cleaned"),
    [
        ("It is so [1, page 1].", "It is so [1]."),
        ("It is so [1, page 9].", "It is so [1]."),
        ("It is so [manual.pdf, p. 2].", "It is so [2]."),
        ("It is so [manual.pdf, page 77].", "It is so."),
        ("It is so [other.pdf].", "It is so."),
        ("It is so [manual.pdf].", "It is so [1][2]."),
        ("见【1，第3页】。", "见[1]。"),
        ("See [the guide](guide.md) and [todo].", "See [the guide](guide.md) and [todo]."),
    ],
)
def test_places_in_marks_are_those_of_passages(answer: str, cleaned: str) -> None:
    assert cite("?", answer, [PUMP, BIRDS])[0] == cleaned
