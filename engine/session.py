"""A chat's virtual address space: which position lies in which page, and which message owns it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.types import MessageKey, PageId, Position, SessionId, Slot
from engine.window import WindowShape, page_edge, window_start


@dataclass(slots=True)
class MessageSpan:
    """Positions [first, end) of one message. `end` grows while the message is being written."""

    key: MessageKey
    first: Position
    end: Position


@dataclass(frozen=True, slots=True)
class EvictedSpan:
    """Positions [first, last] that have just left the window, and the messages that lost their last visible token."""

    first: Position
    last: Position
    messages: tuple[MessageKey, ...]


@dataclass(frozen=True, slots=True)
class SlotRange:
    """A contiguous run of slots [first, end) in the pool."""

    first: Slot
    end: Slot


@dataclass(slots=True)
class Session:
    """One chat in the engine.

    table: the page table, sink pages first, then the ring; constant for the session's life.
    page_pos: position of the first token that each page now holds, -1 while it holds none.
    position: tokens whose K and V are in the pool; also the position of the next token to compute.
    pending: tokens appended and not computed yet.
    spans: messages from the one that the page edge cuts to the newest; the system prompt is not among them.
    start: first visible ring position, as of the last computed token.
    """

    id: SessionId
    shape: WindowShape
    table: list[PageId]
    page_pos: list[Position] = field(init=False)
    position: Position = field(default=Position(0))
    pending: list[int] = field(default_factory=list)
    spans: list[MessageSpan] = field(default_factory=list)
    start: Position = field(init=False)

    def __post_init__(self) -> None:
        self.page_pos = [Position(-1)] * len(self.table)
        self.start = Position(self.shape.sinks)

    @property
    def end(self) -> Position:
        """Position after the last appended token, computed or not."""
        return Position(self.position + len(self.pending))

    @property
    def visible_tokens(self) -> int:
        """Tokens that the last computed token saw: the sinks and [start, position)."""
        return min(self.position, self.shape.sinks) + max(0, self.position - self.start)

    def append(self, key: MessageKey | None, tokens: list[int]) -> None:
        """Append tokens to message `key`, beginning it when the last message is another; None is the system prompt.

        Empty `tokens` change nothing.
        """
        if not tokens:
            return
        if key is not None:
            if not self.spans or self.spans[-1].key != key:
                self.spans.append(MessageSpan(key, self.end, self.end))
            self.spans[-1].end = Position(self.end + len(tokens))
        self.pending.extend(tokens)

    def starts(self, first: Position, end: Position) -> list[Position]:
        """start(t) for each t in [first, end)."""
        boundaries = [span.first for span in self.spans]
        return [window_start(self.shape, Position(t), boundaries) for t in range(first, end)]

    def slot(self, t: Position) -> Slot:
        """Where position t lies, or will lie once its page is its own."""
        page = self.table[self.shape.table_index(t)]
        return Slot(page * self.shape.page_size + self.shape.offset(t))

    def slot_ranges(self, first: Position, end: Position) -> list[SlotRange]:
        """The slots of positions [first, end) as few contiguous runs, oldest position first.

        A ring whose pages are consecutive in the pool needs at most two. Positions must lie on one side of S.
        """
        ranges: list[SlotRange] = []
        t = first
        while t < end:
            page_end = min(end, t - self.shape.offset(t) + self.shape.page_size)
            if t < self.shape.sinks:
                page_end = min(page_end, self.shape.sinks)
            low, high = self.slot(t), Slot(self.slot(t) + page_end - t)
            if ranges and ranges[-1].end == low:
                ranges[-1] = SlotRange(ranges[-1].first, high)
            else:
                ranges.append(SlotRange(low, high))
            t = Position(page_end)
        return ranges

    def advance(self, count: int, start: Position) -> EvictedSpan | None:
        """`count` pending tokens were computed and the last of them had its window begin at `start`.

        Moves `page_pos` on (recycling is that one entry; no page is copied or moved) and returns what left the
        window, each position exactly once.
        """
        for t in range(self.position, self.position + count):
            position = Position(t)
            self.page_pos[self.shape.table_index(position)] = self.shape.page_start(position)
        del self.pending[:count]
        self.position = Position(self.position + count)
        if start <= self.start:
            return None
        lost = EvictedSpan(
            self.start,
            Position(start - 1),
            tuple(span.key for span in self.spans if self.start < span.end <= start),
        )
        self.start = start
        edge = page_edge(self.shape, Position(self.position - 1))
        self.spans = [span for span in self.spans if span.end > edge]
        return lost
