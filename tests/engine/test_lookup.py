from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.lookup import LONGEST, MOST, SHORTEST, PromptLookup

tokens = st.lists(st.integers(0, 3), max_size=60)


@given(tokens, st.integers(0, 12))
def test_a_guess_is_what_followed_the_last_time(history: list[int], most: int) -> None:
    guess = PromptLookup(history).guess(most)
    assert len(guess) <= min(most, MOST)
    plain: list[int] = []
    for size in range(LONGEST, SHORTEST - 1, -1):
        ends = [i for i in range(size, len(history)) if history[i - size : i] == history[-size:]]
        if ends and len(history) >= size:
            plain = history[ends[-1] :]
            break
    assert guess == plain[: len(guess)]
    assert (len(guess) > 0) == (len(plain) > 0 and most > 0)


@given(tokens, st.lists(st.integers(0, 3), max_size=30))
def test_a_history_that_grows_is_a_history(first: list[int], more: list[int]) -> None:
    grown = PromptLookup(first)
    for token in more:
        grown.push(token)
    assert grown.guess(MOST) == PromptLookup([*first, *more]).guess(MOST)


def test_wrong_guesses_become_few_and_right_ones_long() -> None:
    lookup = PromptLookup([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3])
    assert lookup.guess(9) == [4, 5, 6, 7]
    lookup.judge(4, 4)
    lookup.judge(6, 6)
    assert lookup.guess(99) == [4, 5, 6, 7, 8, 9, 1, 2]
    lookup.judge(8, 0)
    assert lookup.guess(99) == []
    for _ in range(8):
        lookup.push(0)
    for token in (1, 2, 3):
        lookup.push(token)
    assert lookup.guess(99) == [0, 0, 0, 0]
