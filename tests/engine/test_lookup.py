from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.lookup import LONGEST, MOST, SHORTEST, PromptLookup


def lookup_of(history: list[int]) -> PromptLookup:
    lookup = PromptLookup()
    lookup.follow(history, [])
    return lookup


tokens = st.lists(st.integers(0, 3), max_size=60)


@given(tokens, st.integers(0, 12))
def test_a_guess_is_what_followed_the_last_time(history: list[int], most: int) -> None:
    guess = lookup_of(history).guess(most)
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
    grown = lookup_of(first)
    for at in range(1, len(more) + 1):
        grown.follow(first, more[:at])
    assert grown.guess(MOST) == lookup_of([*first, *more]).guess(MOST)


def test_wrong_guesses_become_rare_and_right_ones_long() -> None:
    lookup = lookup_of([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3])
    assert lookup.guess(9) == [4, 5, 6, 7]
    lookup.judge(4, 4)
    lookup.judge(6, 6)
    assert lookup.guess(99) == [4, 5, 6, 7, 8, 9, 1, 2]
    lookup.judge(8, 0)
    assert lookup.guess(99) == []
    for _ in range(13):
        lookup.push(0)
    assert lookup.guess(99) == []
    for _ in range(3):
        lookup.push(9)
    for token in (1, 2, 3):
        lookup.push(token)
    assert lookup.guess(99) == [0, 0, 0, 0]
    lookup.judge(4, 0)
    for _ in range(15):
        lookup.push(0)
    assert lookup.guess(99) == []
    lookup.push(0)
    assert lookup.guess(99) == [0]


@given(tokens, st.integers(0, 9), tokens)
def test_a_history_that_went_back_is_read_anew(first: list[int], keep: int, other: list[int]) -> None:
    """As after a banned string: unless what comes then cannot be told from going on."""
    lookup = lookup_of(first)
    history = [*first[:keep], *other]
    lookup.follow(history, [])
    if history[: len(first)] != first and len(history) <= len(first):
        assert lookup.guess(MOST) == lookup_of(history).guess(MOST)
