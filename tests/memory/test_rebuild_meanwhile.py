"""A rebuild throws the vectors away while others use them: they go by words, or by the new ones, and never fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memory import Memory
from memory.embed import Embedder
from memory.types import Message, RecallRequest, SourceId, SourceKind
from memory.vectors import VectorIndex

Turns = Callable[..., list[Message]]
SAID = ("The code of the safe is pomegranate.", "Noted.", "My bicycle is blue.", "A fine colour.")


def search(memory: Memory) -> str:
    return memory.search("code of the safe", kind=SourceKind.CHAT)[0].passage.text


def recall(memory: Memory) -> str:
    request = RecallRequest("What is the code of my safe?", SourceId("other"), budget_tokens=600)
    return memory.recall(request, lambda text: len(text) // 4 + 1).hits[0].passage.text


def count(memory: Memory) -> str:
    return SAID[0] if memory.counts().unindexed in (0, len(SAID)) else ""


@pytest.mark.parametrize(
    ("use", "owner", "during"),
    [
        *((use, *point) for use in (search, recall) for point in ((Embedder, "question"), (VectorIndex, "near"))),
        *((use, VectorIndex, "rows") for use in (search, recall)),
        (count, VectorIndex, "count"),
    ],
)
def test_a_question_goes_on_when_the_vectors_are_thrown_away_under_it(
    memory: Memory,
    turns: Turns,
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[Memory], str],
    owner: type,
    during: str,
) -> None:
    memory.remember(turns(SAID))
    original, dropped = getattr(owner, during), list[str]()

    def drop_first(self: object, *given: object) -> object:
        if not dropped:
            dropped.append(during)
            memory._store.drop_vectors()
        return original(self, *given)

    monkeypatch.setattr(owner, during, drop_first)
    assert use(memory) == SAID[0]
    assert dropped


def test_what_is_remembered_when_the_vectors_are_thrown_away_gets_its_vector(
    memory: Memory, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Embedder.passages

    def drop_first(self: Embedder, keys: list[str]) -> object:
        for batch in original(self, keys):
            memory._store.drop_vectors()
            yield batch

    monkeypatch.setattr(Embedder, "passages", drop_first)
    memory.remember(turns(SAID))
    assert memory.counts().unindexed == 0
