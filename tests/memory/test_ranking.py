"""The parts of a ranking, each by itself: sittings, cues, and what a turn beside a taken one is worth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.passages import Indexed
from memory.recall.cues import MOST, Cues
from memory.recall.rank import rank
from memory.recall.search import Candidate
from memory.recall.window import Pool
from memory.types import Passage, PassageId, Place, RecallRequest, Source, SourceId, SourceKind
from memory.words import tokens

_HOUR = 3600.0
_CHAT = Source(SourceId("chat"), SourceKind.CHAT, "A chat")
_FILE = Source(SourceId("file"), SourceKind.DOCUMENT, "file.txt")


def passage(text: str, ordinal: int, role: str | None = "user", source: Source = _CHAT) -> Passage:
    message = f"m{ordinal}" if source is _CHAT else None
    return Passage(PassageId(f"{source.id}-{ordinal}"), source, Place(message=message), ordinal, 0.0, text, role)


def candidate(text: str, ordinal: int, score: float, source: Source = _CHAT) -> Candidate:
    words = frozenset(tokens(text))
    return Candidate(passage(text, ordinal, source=source), 0.5, 1.0, 0.5, 0.5, score, words)


def order(*candidates: Candidate) -> list[int]:
    return [
        c.passage.ordinal for c in rank(candidates, RecallRequest("", SourceId("")), 10, cap_sources=False, question="")
    ]


def test_of_nearly_equal_turns_one_elsewhere_comes_before_the_neighbour_of_a_taken_one() -> None:
    red, blue, green = (
        candidate("a red barn", 4, 0.90),
        candidate("one blue door", 5, 0.88),
        candidate("my green gate", 30, 0.87),
    )
    assert order(red, blue, green) == [4, 30, 5]
    clearly_better = candidate("one blue door", 5, 0.95)
    assert order(red, clearly_better, green) == [5, 30, 4]


def test_a_documents_parts_do_not_give_way_to_each_other() -> None:
    parts = (("a red barn", 4, 0.90), ("one blue door", 5, 0.88), ("my green gate", 30, 0.87))
    assert order(*(candidate(*part, _FILE) for part in parts)) == [4, 5, 30]


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1)), unique_by=lambda pair: pair[0], max_size=20))
def test_every_candidate_comes_once_and_the_best_comes_first(found: list[tuple[int, float]]) -> None:
    chosen = [candidate(f"word{ordinal}", ordinal, score) for ordinal, score in found]
    ranked = rank(chosen, RecallRequest("", SourceId("")), 100, cap_sources=False, question="")
    assert sorted(c.passage.ordinal for c in ranked) == sorted(ordinal for ordinal, _ in found)
    assert not ranked or ranked[0].score == max(score for _, score in found)


_ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.floats(0, 1, width=32)), min_size=1)


@given(_ROWS)
def test_a_sitting_is_as_good_as_its_three_best(found: list[tuple[str, int, float]]) -> None:
    """Rows of three chats, each turn as many hours after the beginning as its number says."""
    known = {(chat, hour): score for chat, hour, score in found}
    rows = sorted(known)
    pool = Pool([Indexed(PassageId(f"{c}{h}"), c, h, h * _HOUR, f"{c}{h}", "user", "", "") for c, h in rows])
    scores = np.array([known[row] for row in rows], dtype=np.float32)
    sittings: list[list[int]] = []
    for number, (chat, hour) in enumerate(rows):
        last = rows[number - 1] if number else None
        if last is None or last[0] != chat or hour - last[1] > 3:
            sittings.append([])
        sittings[-1].append(number)
    expected = np.empty_like(scores)
    for sitting in sittings:
        expected[sitting] = np.sort(scores[sitting])[::-1][:3].mean()
    assert pool.of_sittings(scores) == pytest.approx(expected, abs=1e-6)


def test_what_makes_a_turn_worth_more() -> None:
    plain, asked = passage("The fence is green now.", 2), passage("Is the fence green now?", 1)
    cues = Cues("What colour is the fence?")
    assert cues.worth(plain, asked) > cues.worth(plain, None) > cues.worth(asked, None)
    assert cues.worth(asked, None) > cues.worth(passage("The fence is green now!", 2, "assistant"), None)
    yesterday = passage("It was painted yesterday", 2)
    when, where = Cues("When was the fence painted?"), Cues("Where was the fence painted?")
    assert when.worth(yesterday, None) > where.worth(yesterday, None)
    line = passage("Ada: It was painted yesterday, and I did it myself, all of it, " * 4, 2)
    everything = Cues("When did Ada paint it?").worth(line, asked)
    assert everything == pytest.approx(MOST)
