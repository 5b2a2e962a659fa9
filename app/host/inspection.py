"""What a person asks about the memory itself: its sources, its passages, its size, and why it chose what it chose. As
it passes to the memory's child and back; see `app.host.wire`."""

from __future__ import annotations

from dataclasses import dataclass

from app.host.wire import Passage, RecallRequest, SourceKind


@dataclass(frozen=True, slots=True)
class ListSources:
    """Ask for every chat and document that the memory holds."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """One source. `added` and `newest` are Unix seconds: when it came, and the time of its newest passage, if any;
    `format` ("" for chats) and `pages` are those of documents."""

    id: str
    kind: SourceKind
    title: str
    origin: str
    format: str
    pages: int | None
    passages: int
    added: float
    newest: float | None


@dataclass(frozen=True, slots=True)
class ListPassages:
    """Ask for every passage; they come as events, each a tuple of some passages, source by source. The answer is how
    many there were."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Make both indexes anew; LoadProgress tells how far it is, the answer is how many passages there are."""


@dataclass(frozen=True, slots=True)
class MeasureMemory:
    """Ask for the memory's size."""


@dataclass(frozen=True, slots=True)
class PartSize:
    """The bytes that one part of the memory takes on disk."""

    part: str
    bytes: int


@dataclass(frozen=True, slots=True)
class DigestCount:
    """How many digests a model wrote, or "extract": those in the words of the talk."""

    maker: str
    count: int


@dataclass(frozen=True, slots=True)
class MemorySize:
    """What the memory holds; digests are among the passages. `unindexed` passages are found by their words only;
    `problem` says why, when there is something wrong."""

    documents: int
    chats: int
    passages: int
    unindexed: int
    embedder: str
    problem: str
    sizes: tuple[PartSize, ...]
    digests: tuple[DigestCount, ...]


@dataclass(frozen=True, slots=True)
class WhyRequest:
    """Do what recall would do for this question, and tell how it came to it."""

    recall: RecallRequest


@dataclass(frozen=True, slots=True)
class Leg:
    """How one passage fared: its fused score and those of meaning and words, each 0..1 within this search."""

    passage: Passage
    score: float
    dense: float
    lexical: float


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A passage that was found and not delivered, and why. `by_meaning` and `by_words` are its places in the
    two legs, counted from 1, None where a leg did not find it; `nearness` should have reached `bar`."""

    passage: Passage
    by_meaning: int | None
    by_words: int | None
    score: float
    nearness: float
    bar: float
    reason: str


@dataclass(frozen=True, slots=True)
class Why:
    """The decision with its reason, and the passages in the order in which they were delivered. `block_tokens` of
    `budget_tokens` were used for `block`, which is what the model reads."""

    scope: str
    reason: str
    query: str
    delivered: tuple[Leg, ...]
    found: int
    """How many passages the search brought."""
    passed_over: tuple[PassedOver, ...]
    """The best of those that were not delivered."""
    block: str
    block_tokens: int
    budget_tokens: int
    seconds: float
