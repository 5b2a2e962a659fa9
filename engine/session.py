"""A chat's virtual address space: which position lies in which page, and which message owns it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from engine.heat import ScoredRing
from engine.policy import Policy
from engine.types import EngineError, MessageKey, PageId, PageKey, Position, SessionId, Slot
from engine.window import WindowShape, full_pages, page_bounds, page_edge, table_entry, window_start

NO_PAGE = PageId(-1)
"""A page table entry that was never used."""
NOTHING = Position(0)
"""How far a history is computed of which nothing is."""


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


@dataclass(frozen=True, slots=True)
class Tail:
    """The page that was being written when a session was swapped out or forked: its tokens up to `end`, not all that it
    has room for, have an image known by `key`, as long as that is not dropped."""

    end: Position
    key: PageKey


@dataclass(slots=True)
class Session:
    """One chat in the engine.

    table: the page table, sink pages first, then the ring; an entry is NO_PAGE until it is first used, and changes
        afterwards only when the page under it is shared.
    claimed: table entries that take effect with the next computed tokens; what lies before them is read from `table`.
    page_pos: position of the first token that each page now holds, -1 while it holds none.
    past: tokens whose K and V were computed, from the first to the last: 4 bytes each, and cheap to copy.
    pending: tokens appended and not computed yet.
    pinned: messages among the sinks, after the system prompt; `messages` and `spans` hold none of them.
    messages: every message, from the first.
    silent: where messages without a token stand: an empty answer between marks that a template leaves out.
    spans: messages from the one that the page edge cuts to the newest; the system prompt is not among them.
    start: first visible ring position, as of the last computed token.
    floor: the ring position before which the policy has dropped everything: what follows was computed without it. The
        dropped tokens stay in `past`, and have no page.
    page_keys: what the full pages of the history are known by, from the first on, as far as anybody asked. A full page
        never changes, whatever is appended.
    tail: the image of a page that was not full; of use as long as its tokens are part of the history.
    ring: which pages are held, if the policy is to score them: then neither `start` nor `told` says anything.
    told: every ring position before this one was reported as evicted, or had left the window where this session begins.
    """

    id: SessionId
    shape: WindowShape
    table: list[PageId] = field(default_factory=list)
    claimed: dict[int, PageId] = field(default_factory=dict)
    page_pos: list[Position] = field(init=False)
    past: array[int] = field(default_factory=lambda: array("i"))
    pending: list[int] = field(default_factory=list)
    messages: list[MessageSpan] = field(default_factory=list)
    silent: dict[MessageKey, Position] = field(default_factory=dict)
    page_keys: list[PageKey] = field(default_factory=list)
    pinned: tuple[MessageSpan, ...] = ()
    policy: Policy = Policy.ROUND_ROBIN
    tail: Tail | None = None
    spans: list[MessageSpan] = field(init=False)
    start: Position = field(init=False)
    floor: Position = field(init=False)
    ring: ScoredRing | None = field(init=False)
    told: Position = field(init=False)

    def __post_init__(self) -> None:
        self.table = self.table or [NO_PAGE] * self.shape.quota_pages
        self.page_pos = [Position(-1)] * len(self.table)
        self.spans = list(self.messages)
        self.start = self.floor = self.told = Position(self.shape.sinks)
        entries = range(self.shape.sink_pages, self.shape.quota_pages)
        self.ring = ScoredRing(entries) if self.policy is Policy.SCORED else None

    @property
    def position(self) -> Position:
        """Tokens whose K and V are computed; also the position of the next token to compute."""
        return Position(len(self.past))

    @property
    def end(self) -> Position:
        """Position after the last appended token, computed or not."""
        return Position(len(self.past) + len(self.pending))

    @property
    def unread(self) -> int:
        """Tokens that are to be computed: those that wait, without the dropped ones among them."""
        return len(self.pending) - max(0, self.floor - max(self.position, self.shape.sinks))

    @property
    def visible_tokens(self) -> int:
        """Tokens that the last computed token saw, those of the sinks included."""
        return min(self.position, self.shape.sinks) + sum(end - first for first, end in self.visible_ranges())

    def visible_ranges(self) -> list[tuple[Position, Position]]:
        """What the last computed token saw of the ring, oldest first."""
        if self.ring is None:
            return [(self.start, self.position)] if self.start < self.position else []
        ranges: list[tuple[Position, Position]] = []
        for number in self.ring.live:
            first, end = page_bounds(self.shape, number)
            end = min(end, self.position)
            if ranges and ranges[-1][1] == first:
                ranges[-1] = ranges[-1][0], end
            elif first < end:
                ranges.append((first, end))
        return ranges

    def entry(self, number: int) -> int:
        """Index into the page table of a page by its number."""
        if self.ring is None or number < self.shape.sink_pages:
            return table_entry(self.shape, number)
        return self.ring.live[number]

    def place(self, t: Position) -> int:
        """Index into the page table for the page of position t, which is about to be written."""
        number = full_pages(self.shape, t)
        if self.ring is None or number < self.shape.sink_pages:
            return table_entry(self.shape, number)
        return self.ring.place(number)

    def append(self, key: MessageKey | None, tokens: list[int]) -> None:
        """Append tokens to message `key`, beginning it when the last message is another; None is for the sinks.

        Of empty `tokens` only the place is known. Raises EngineError for the key of a pinned message.
        """
        if key is not None:
            self.refuse_pinned(key)
        said = bool(self.messages) and self.messages[-1].key == key
        if not tokens:
            if key is not None and not said:
                self.silent[key] = self.end
            return
        if key is not None:
            if not said:
                span = MessageSpan(key, self.end, self.end)
                self.messages.append(span)
                self.spans.append(span)
                self.silent.pop(key, None)
            self.messages[-1].end = Position(self.end + len(tokens))
        self.pending.extend(tokens)

    def refuse_pinned(self, key: MessageKey) -> None:
        """Raise EngineError when `key` is a pinned message: a chat says a message once."""
        if any(span.key == key for span in self.pinned):
            raise EngineError(f"message {key} is pinned to this chat's window already: leave it out of the chat")

    def starts(self, first: Position, end: Position) -> list[Position]:
        """start(t) for each t in [first, end)."""
        boundaries = [span.first for span in self.spans]
        return [self._start(Position(t), boundaries) for t in range(first, end)]

    def _start(self, t: Position, boundaries: list[Position]) -> Position:
        if t < self.shape.sinks or self.policy is Policy.SCORED:
            return Position(self.shape.sinks)
        if self.policy is Policy.TRUNCATE:
            return self.floor
        return max(self.floor, window_start(self.shape, t, boundaries))

    def slot(self, t: Position) -> Slot:
        """Where position t lies, or will lie once its page is its own."""
        index = self.entry(full_pages(self.shape, t))
        page = self.table[index] if t < self.position else self.claimed.get(index, self.table[index])
        return Slot(page * self.shape.page_size + self.shape.offset(t))

    def slot_ranges(self, first: Position, end: Position) -> list[SlotRange]:
        """The slots of positions [first, end) as few contiguous runs, oldest position first.

        A ring whose pages are consecutive in the pool needs at most two. Positions must lie on one side of S.
        """
        ranges: list[SlotRange] = []
        size, number, t = self.shape.page_size, full_pages(self.shape, first), first
        page_first, page_end = page_bounds(self.shape, number)
        while t < end:
            index, stop = self.entry(number), min(end, page_end)
            page = self.table[index] if t < self.position else self.claimed.get(index, self.table[index])
            low = Slot(page * size + t - page_first)
            high = Slot(low + stop - t)
            if ranges and ranges[-1].end == low:
                ranges[-1] = SlotRange(ranges[-1].first, high)
            else:
                ranges.append(SlotRange(low, high))
            t, number, page_first, page_end = stop, number + 1, page_end, Position(page_end + size)
        return ranges

    def next_table(self) -> list[PageId]:
        """The page table as it is once the claimed pages are written."""
        table = list(self.table)
        for index, page in self.claimed.items():
            table[index] = page
        return table

    def advance(self, count: int, start: Position) -> EvictedSpan | None:
        """`count` pending tokens were computed and the last of them had its window begin at `start`.

        Moves `page_pos` on (recycling is that one entry; no page is copied or moved) and returns what left the
        window, each position exactly once.
        """
        for t in range(self.position, self.position + count):
            position = Position(t)
            self.page_pos[self.entry(full_pages(self.shape, position))] = self.shape.page_start(position)
        self.past.extend(self.pending[:count])
        del self.pending[:count]
        if self.ring is not None:
            return self._recycled(self.ring)
        start = max(start, self._pass_floor())
        if start > self.start:
            self.start = start
            self.trim()
        if start <= self.told:
            return None  # tokens of a chat that came back are computed again; they were reported before
        told, self.told = self.told, start
        return EvictedSpan(told, Position(start - 1), self._ended(told, start))

    def _recycled(self, ring: ScoredRing) -> EvictedSpan | None:
        number, ring.recycled = ring.recycled, None
        if number is None:
            return None
        self.trim()
        if number in ring.gone:
            return None
        ring.gone.add(number)
        first, end = page_bounds(self.shape, number)
        over = [span for span in self._since(first) if span.first < end and first < span.end <= self.position]
        lost = tuple(span.key for span in over if not ring.live.keys() & set(self.pages_of(span)))
        return EvictedSpan(first, Position(end - 1), lost)

    def pages_of(self, span: MessageSpan) -> range:
        """The numbers of the pages that a message lies in."""
        return range(full_pages(self.shape, span.first), full_pages(self.shape, Position(span.end - 1)) + 1)

    def tell_on_from(self, before: Session) -> None:
        """What was told of `before`, whose history this is or is cut from, stays told until it is visible again."""
        self.told = min(before.told, self.told)
        if self.ring is not None and before.ring is not None:
            full = full_pages(self.shape, self.end)  # what lay behind the end of this history is none of its
            gone = self.ring.gone | {number for number in before.ring.gone if number < full}
            self.ring.gone = gone - self.ring.live.keys()

    def told_as(self, before: Session) -> None:
        """What was told of `before` stays told."""
        self.told = before.told
        if self.ring is not None and before.ring is not None:
            self.ring.gone |= before.ring.gone

    def _pass_floor(self) -> Position:
        """Once the sinks are computed, the next token is the one at the floor; where the window begins at least."""
        if not self.shape.sinks <= self.position < self.floor:
            return Position(self.shape.sinks)
        dropped = self.floor - self.position
        self.past.extend(self.pending[:dropped])
        del self.pending[:dropped]
        return self.floor

    def floor_at(self, end: Position) -> Position:
        """The floor of this history when it is cut at `end`."""
        match self.policy:
            case Policy.TRUNCATE if end > self.floor:
                return self.floor
            case Policy.RECOMPUTE:
                last = Position(end - 1)
                return window_start(self.shape, last, [span.first for span in self._since(last)])
        return Position(self.shape.sinks)

    def drop_before(self, floor: Position) -> None:
        """Have the ring begin at `floor`. What was computed of it is of no use any more when that is another floor."""
        if floor != self.floor:
            self.floor, self.tail = floor, None
            del self.page_keys[self.shape.sink_pages :]

    def held(self, number: int) -> tuple[Position, Position]:
        """Positions [first, end) that a full page holds: those after the floor; none when all of it was dropped."""
        first, end = page_bounds(self.shape, number)
        return (first, end) if number < self.shape.sink_pages else (min(end, max(first, self.floor)), end)

    def trim(self) -> None:
        """Keep in `spans` only what can still matter to a window."""
        last = Position(self.position - 1)
        if self.ring is not None:
            held = self.visible_ranges()
            first = held[0][0] if held else last
            self.spans = self.messages[bisect_right(self.messages, first, key=lambda span: span.end) :]
        else:
            self.spans = self._since(last)

    def _since(self, t: Position) -> list[MessageSpan]:
        """The messages that can matter to the window of the token at t, and those after them."""
        return self.messages[bisect_right(self.messages, page_edge(self.shape, t), key=lambda span: span.end) :]

    def _ended(self, after: Position, until: Position) -> tuple[MessageKey, ...]:
        """Messages whose end lies in (after, until]; of a chat that came back, `spans` may hold them no more."""
        low = bisect_right(self.messages, after, key=lambda span: span.end)
        high = bisect_right(self.messages, until, lo=low, key=lambda span: span.end)
        return tuple(span.key for span in self.messages[low:high])

    def starts_within(self, first: Position, end: Position) -> list[int]:
        """Offsets from `first` at which messages begin in [first, end)."""
        low = bisect_left(self.messages, first, key=lambda span: span.first)
        high = bisect_left(self.messages, end, lo=low, key=lambda span: span.first)
        return [span.first - first for span in self.messages[low:high]]

    def boundary_after(self, key: MessageKey | None) -> Position:
        """Where the history ends when `key` is its last message (None: the sinks).

        Raises EngineError for a message that is not there, and for one that is pinned.
        """
        if key is None:
            return Position(self.shape.sinks)
        if any(span.key == key for span in self.pinned):
            raise EngineError(
                f"message {key} is pinned to this chat's window and stands before all others: name a message after it"
            )
        end = next((span.end for span in reversed(self.messages) if span.key == key), self.silent.get(key))
        if end is None:
            raise EngineError(
                f"this chat holds no message {key}: it was never said here, or before the chat was reopened"
            )
        return end

    def tokens(self, first: Position, end: Position) -> array[int]:
        """The tokens at positions [first, end), computed or not."""
        computed = self.position
        waiting = self.pending[max(0, first - computed) : max(0, end - computed)]
        return self.past[first:end] + array("i", waiting)

    def window_at(self, t: Position) -> Position:
        """start(t) of any token that was computed or waits."""
        return self._start(t, [span.first for span in self._since(t)])

    def up_to(self, name: SessionId, end: Position, computed: Position = NOTHING) -> Session:
        """A session with the history [0, end) of this one, its first `computed` tokens computed; it holds no page.

        Messages are shared but for the last, the only one that grows.
        """
        messages = self.messages[: bisect_left(self.messages, end, key=lambda span: span.first)]
        if messages:
            last = messages[-1]
            messages[-1] = MessageSpan(last.key, last.first, Position(min(last.end, end)))
        session = Session(
            name,
            self.shape,
            past=self.tokens(NOTHING, computed),
            pending=self.tokens(computed, end).tolist(),
            messages=messages,
            silent={key: at for key, at in self.silent.items() if at <= end},
            pinned=self.pinned,
            page_keys=self.page_keys[: full_pages(self.shape, end)],
            policy=self.policy,
            tail=self.tail if self.tail is not None and self.tail.end <= end else None,
        )
        session.floor = self.floor
        session.drop_before(self.floor_at(end))
        session.told = session.window_at(Position(end - 1))
        return session
