"""Which pages a ring keeps when those that attention used most stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Heat = Mapping[int, float]
"""Of each page that a ring holds, by page number: the attention that its tokens got since it was written."""


def coldest(heat: Heat, entries: int) -> int:
    """The page that a full ring of so many entries recycles next."""
    older = sorted(heat)[: entries - entries // 2]
    return min(older, key=lambda number: (heat[number], number))


@dataclass(slots=True)
class ScoredRing:
    """The ring of a session whose policy is to keep the heavy hitters (H2O, arXiv 2306.14048), a page at a time (Quest,
    arXiv 2406.10774, has pages for its unit because tokens that matter stand together).

    A page's heat is the sum of the attention weights of its tokens, over layers, query heads and the tokens that looked
    at it, since it was written. When a page is to be written and every entry is taken, the page with the least heat is
    recycled, the oldest of equals; the newest half of the ring is spared, as H2O shares its budget between what is
    recent and what is heavy. Heat only grows, as theirs does: halved over half a ring, so that what was heavy long ago
    could go, it read the text of tests/bench/policies.py less well (3.375 nats a token against 3.350).

    entries: indices into the page table that are the ring's.
    live: page number -> the entry it lies in, in the order of the numbers.
    recycled: the page that the next computed tokens take the place of.
    gone: pages that were reported as evicted, or had left where this session begins.
    """

    entries: Sequence[int]
    live: dict[int, int] = field(default_factory=dict)
    heat: dict[int, float] = field(default_factory=dict)
    recycled: int | None = None
    gone: set[int] = field(default_factory=set)

    def place(self, number: int) -> int:
        """The entry for a page that is about to be written; one is recycled for it when all are taken."""
        if number in self.live:
            return self.live[number]
        if len(self.live) == len(self.entries):
            self.recycled = self.coldest()
            self.live[number] = self.live.pop(self.recycled)
            del self.heat[self.recycled]
        else:
            self.live[number] = min(set(self.entries) - set(self.live.values()))
        self.heat[number] = 0.0
        return self.live[number]

    def coldest(self) -> int:
        """The page that is recycled next."""
        return coldest(self.heat, len(self.entries))

    def without_told(self, heat: Heat) -> Heat:
        """What a ring whose pages have this heat at the end of a page goes on with: all of them, but for the one that
        the next token takes the place of, if that was told before. It does not come back to be told again."""
        if len(heat) < len(self.entries) or (told := coldest(heat, len(self.entries))) not in self.gone:
            return heat
        return {number: much for number, much in heat.items() if number != told}

    def warm(self, heat: Heat) -> None:
        """Add what pages were looked at by tokens that were computed."""
        for number, more in heat.items():
            self.heat[number] += more

    def take_up(self, heat: Heat, end: int) -> None:
        """The ring as it was when it held the pages of `heat`, of them those before page `end` full; where they lie is
        of no account."""
        self.live = dict(zip(sorted(heat), self.entries, strict=False))
        self.heat = {number: heat[number] for number in self.live}
        self.gone = set(range(self.entries[0], end)) - self.live.keys()
