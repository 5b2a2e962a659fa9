"""What a token may see: a pure function of the token history and the position, and of nothing else.

With S sink tokens, pages of P tokens and a ring of R pages, the token at position t sees

    see(t) = [0, S) ∪ [start(t), t]
    start(t) = max(S, S + ((t - S) // P - R + 1) * P)

raised to the next message boundary at or before t, so that the model never reads half a message, unless the
message that is cut is longer than half the ring. The chunk size, the batch and the state of the page table play
no part, so a prompt read at once, in chunks or token by token gives the same keys and values (vLLM #42273 and
mlx-lm #390 are what happens otherwise).

Sinks after StreamingLLM (arXiv 2309.17453): the first tokens draw attention whatever they say, so they stay.

A layer that has a sliding window of its own (Mistral, Gemma's local layers) sees of this only what lies less than
`native` tokens back; see `sight`.

Example: P = 4, S = 4, R = 3 (12 ring tokens), one long message. Position 15 still sees 4..15; position 16 needs
the page that held 4..7, so start(16) = 8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from engine.types import Position


@dataclass(frozen=True, slots=True)
class WindowShape:
    """A session's quota, fixed for its life.

    `page_size` tokens a page; `sinks` tokens at the front, never recycled; `ring_pages` pages reused round-robin.
    """

    page_size: int
    sinks: int
    ring_pages: int

    @property
    def sink_pages(self) -> int:
        """Pages that hold the sinks; the last may be partly filled."""
        return -(-self.sinks // self.page_size)

    @property
    def quota_pages(self) -> int:
        """Sink pages + ring pages: all that the session may ever hold."""
        return self.sink_pages + self.ring_pages

    @property
    def ring_tokens(self) -> int:
        """Capacity of the ring in tokens."""
        return self.ring_pages * self.page_size

    def table_index(self, t: Position) -> int:
        """Index into the session's page table of the page that holds position t."""
        if t < self.sinks:
            return t // self.page_size
        return self.sink_pages + (t - self.sinks) // self.page_size % self.ring_pages

    def offset(self, t: Position) -> int:
        """Offset of position t inside its page. Ring pages begin at position S, not at a multiple of P."""
        return (t if t < self.sinks else t - self.sinks) % self.page_size

    def page_start(self, t: Position) -> Position:
        """Position of the first token of the page that holds t."""
        return Position(t - self.offset(t))

    def full_at(self, floor: Position) -> Position:
        """The first position that the ring cannot hold while it holds all from `floor` on."""
        return Position(self.page_start(floor) + self.ring_tokens)

    def until_eviction(self, t: Position) -> int:
        """Tokens that can still be added, after the token at t, before a page has to be recycled."""
        filled = t + 1 - self.sinks
        if filled < self.ring_tokens:
            return self.ring_tokens - filled
        return -filled % self.page_size


def full_pages(shape: WindowShape, position: Position) -> int:
    """How many pages a history of `position` tokens has filled, recycled ones included."""
    if position < shape.sinks:
        return position // shape.page_size
    return shape.sink_pages + (position - shape.sinks) // shape.page_size


def page_bounds(shape: WindowShape, number: int) -> tuple[Position, Position]:
    """Positions [first, end) of a page; the last sink page may be shorter than the others."""
    if number < shape.sink_pages:
        first = number * shape.page_size
        return Position(first), Position(min(shape.sinks, first + shape.page_size))
    first = shape.sinks + (number - shape.sink_pages) * shape.page_size
    return Position(first), Position(first + shape.page_size)


def table_entry(shape: WindowShape, number: int) -> int:
    """Index into the page table of a page number."""
    return number if number < shape.sink_pages else shape.sink_pages + (number - shape.sink_pages) % shape.ring_pages


def page_edge(shape: WindowShape, t: Position) -> Position:
    """start(t) before message boundaries are looked at."""
    oldest = (t - shape.sinks) // shape.page_size - shape.ring_pages + 1
    return Position(max(shape.sinks, shape.sinks + oldest * shape.page_size))


def window_start(shape: WindowShape, t: Position, boundaries: Sequence[Position]) -> Position:
    """start(t): the first ring position that the token at t sees.

    `boundaries` are the positions at which messages begin, ascending; entries after t are ignored, and entries
    before the last boundary at or below the page edge may be missing. For t < S the result is S.
    """
    edge = page_edge(shape, t)
    if edge <= shape.sinks:
        return Position(shape.sinks)
    i = bisect_left(boundaries, edge)
    if i == len(boundaries) or boundaries[i] == edge or boundaries[i] > t or i == 0:
        return edge
    cut_message = boundaries[i] - boundaries[i - 1]
    return boundaries[i] if cut_message <= shape.ring_tokens // 2 else edge


@dataclass(frozen=True, slots=True)
class Sight:
    """What one token sees in one layer: the sinks [sink, S) and the ring [start, t]; at t < S it is [sink, t]."""

    sink: Position
    start: Position


def sight(shape: WindowShape, t: Position, start: Position, native: int | None) -> Sight:
    """What the token at t, whose window begins at `start`, sees in a layer with a native window of `native` tokens
    (itself included; None for no such window): the newest `native` tokens of those that the session sees.

    A native window is a distance, and distances are those that the rotation has (see `sink_phase`): to ring tokens the
    absolute ones, to sinks those inside the cache, in which the sinks stand right before `start`. So

    - nothing evicted yet: [0, t] ∩ (t - native, t], as in transformers;
    - a native window at least as long as the quota hides nothing, ever: the quota is the smaller, and sinks stay
      visible, as they must where the window slides;
    - a native window shorter than the ring ends inside the ring: no sinks, as the model was trained;
    - one that ends between shows the last few sinks, as many as it still reaches.

    The pages stay the session's own and the same for all layers: a local layer only looks at fewer of them.

    Example: S = 4, `start` = 8, t = 15. A native window of 10 shows 8..15 and sinks 2 and 3, which stand at distances
    8 and 9; one of 5 shows 11..15.
    """
    if native is None:
        return Sight(Position(0), start)
    sink = max(0, sink_phase(shape, t, start) - native + 1)
    return Sight(Position(min(shape.sinks, sink)), Position(max(start, t - native + 1)))


def sink_phase(shape: WindowShape, t: Position, start: Position) -> Position:
    """The position at which the query of t is rotated for the sink pages: `t - (start - S)`.

    The distances to the sinks are then those of StreamingLLM's positions inside the cache, although every key was
    rotated once, at its own position, and stays as it is. Before the first eviction this is t itself.
    """
    return Position(t - (start - shape.sinks)) if t >= shape.sinks else t
