"""What a session may do with pages: be admitted, write the next ones, find known ones again, leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.cache.host_tier import HostTier
from engine.cache.pages import Pages
from engine.cache.pool import Pool
from engine.cache.prefix import KnownPage, PrefixCache, page_key, root_key
from engine.heat import Heat
from engine.policy import Policy
from engine.session import NO_PAGE, Session, Tail
from engine.types import PageId, PageKey, Position
from engine.window import WindowShape, full_pages, page_bounds


@dataclass(slots=True)
class _Lease:
    """An admitted session: its home, and how many full pages of its history are behind it."""

    home: PageId
    full: int = 0


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the history [0, end) can be taken up: at `position`. `kept` are (page number, known page) of those that the
    next tokens see, and of the one before them where it is known; `tail` is the page that is gone on with, `heat` the
    ring's there, if pages are scored."""

    kept: list[tuple[int, KnownPage]]
    position: Position
    end: Position
    tail: Tail | None = None
    heat: Heat | None = None


class KvCache:
    """Joins pool, pages, host tier and prefix cache. A page number counts a session's pages from its first, recycled
    ones included: sink pages, then one every `page_size` tokens after the sinks."""

    def __init__(self, model: str, pages: Pages, *, sessions: int, quota_pages: int, host_images: int) -> None:
        self.pages = pages
        self.pool = Pool(sessions=sessions, quota_pages=quota_pages)
        self.prefix = PrefixCache(HostTier(pages, host_images))
        self._model = model
        self.found_tokens = 0
        """Tokens that sessions took up from known pages."""
        self._leases: dict[int, _Lease] = {}

    def admit(self, session: Session) -> None:
        """Charge the session's quota. Raises PoolFullError."""
        self._leases[session.id] = _Lease(self.pool.admit())

    def admitted(self, session: Session) -> bool:
        """Whether the session may hold pages."""
        return session.id in self._leases

    def leave(self, session: Session) -> None:
        """Give everything back; full pages stay known by their images."""
        lease = self._leases.pop(session.id)
        self._touch(session, lease.full)
        for page in self._held(session):
            self._release(page)
        session.table = [NO_PAGE] * len(session.table)
        session.claimed.clear()
        self.pool.leave(lease.home)

    def swap_out(self, session: Session) -> None:
        """Give everything back and have images of all that the session goes on from, its last page included, as far as
        the host tier holds them."""
        shape, full = session.shape, self._leases[session.id].full
        self.keep_tail(session, session.end)
        for number in (*_ring_pages(session, full), *range(min(full, shape.sink_pages))):
            index, first = session.entry(number), page_bounds(shape, number)[0]
            seen = number < shape.sink_pages or first >= session.start
            # The page that is being written may lie where the oldest of them lay. What nobody sees and nobody knows
            # is nothing to go on from.
            if session.page_pos[index] == first and (seen or self.prefix.key(session.table[index]) is not None):
                self._know(session, number)
        self.leave(session)

    def keep_tail(self, session: Session, end: Position) -> None:
        """Keep an image of the page that the session writes at, for whoever goes on from its history [0, end): as much
        of the page as leaves a token to compute; of a scored one all that is computed, as heat is known only there.
        Nothing when `end` lies further back, or the session holds no page."""
        if not self.admitted(session) or not session.policy.keeps_tails:
            return
        shape, number = session.shape, full_pages(session.shape, session.position)
        first, until = session.held(number)[0], min(session.position, Position(end - 1))
        if session.ring is not None:
            until = session.position if session.position <= end else first
        in_window = session.start <= first or session.start <= session.window_at(Position(until - 1))
        if number < shape.sink_pages or until <= first or not in_window:
            return
        self._touch(session, number)  # what is dropped to make room is others'
        self._keys(session, number)
        tail = session.tail = Tail(until, self._key(session, number, until))
        page, heat = session.table[session.entry(number)], self._heat(session, until)
        self.prefix.keep(tail.key, session.tokens(first, until), page, heat)
        self._touch(session, number)

    def claim(self, session: Session, count: int) -> None:
        """Make the pages of the next `count` tokens writable: an own page is used again where it lies, a shared one is
        left to the others. In a step, sessions that decode claim before the one that reads a prompt: the tokens of a
        prompt may still see what they replace, so it is let go of only by `settle`."""
        shape, home = session.shape, self._leases[session.id].home
        for t in _page_starts(session, count):
            index = session.place(t)
            page, own = session.table[index], PageId(home + index)
            moves_home = count == 1 and page != own and self.pool.is_free(own)
            if page != NO_PAGE and self.pool.holders(page) == 1 and not moves_home:
                self.prefix.lost(page)
            elif count == 1:
                if page != NO_PAGE:
                    self._release(page)
                page = session.table[index] = self.pool.take(own)
            else:
                page = session.claimed[index] = self.pool.take(own)
            number, end = full_pages(shape, t), session.position + count
            if count == 1 or page_bounds(shape, number)[1] > end or number < kept_pages(self.pages, shape):
                self.pages.begin(page)

    def settle(self, session: Session) -> None:
        """After the tokens were computed: let go of what was replaced, and know the pages that became full."""
        for index, page in session.claimed.items():
            if session.table[index] != NO_PAGE:
                self._release(session.table[index])
            session.table[index] = page
        session.claimed.clear()
        lease, shape = self._leases[session.id], session.shape
        for number in range(lease.full, full_pages(shape, session.position)):
            first, end = session.held(number)
            if first == end:
                continue
            if number >= kept_pages(self.pages, shape):
                self.pages.forget(session.table[session.entry(number)])
            self._know(session, number)
            self.prefix.touch(session.page_keys[: shape.sink_pages])
        lease.full = full_pages(shape, session.position)

    def find(self, session: Session, end: Position) -> Resume:
        """The furthest point of the history [0, end) that known pages lead to, at least one token before its end."""
        shape = session.shape
        until, sinks = full_pages(shape, Position(end - 1)), shape.sink_pages
        least = full_pages(shape, session.floor)
        if until < sinks:
            return Resume([], Position(0), end)
        self._keys(session, until)
        kept = [(number, page) for number in range(sinks) if (page := self._known(session, number)) is not None]
        if len(kept) < sinks:
            return Resume([], Position(0), end)
        if session.ring is not None:
            return self._find_scored(session, kept, until, end)
        newest: list[tuple[int, KnownPage]] = []
        for number in range(until - 1, least - 1, -1):
            # The oldest page of a full ring is recycled by the next token; it is held only for the meter.
            oldest = until - number == shape.ring_pages
            if (page := self._known(session, number)) is not None:
                newest.append((number, page))
            elif not oldest:
                until, newest = number, []
            if oldest:
                break
        position = page_bounds(shape, until - 1)[1] if until > least else session.floor
        tail = session.tail
        if tail is None or tail.end >= end or not position < tail.end < page_bounds(shape, until)[1]:
            return Resume([*kept, *reversed(newest)], position, end)
        if self.prefix.find(tail.key, session.tokens(position, tail.end)) is None:
            return Resume([*kept, *reversed(newest)], position, end)
        if len(newest) == shape.ring_pages:
            newest.pop()  # its place in the ring is the tail's
        return Resume([*kept, *reversed(newest)], tail.end, end, tail)

    def _find_scored(self, session: Session, sinks: list[tuple[int, KnownPage]], until: int, end: Position) -> Resume:
        """Back to the last point of which the heat is known, as are all pages that the ring goes on with from there."""
        for number in range(until, session.shape.sink_pages - 1, -1):  # the page that would be gone on with
            for heat, tail in self._heats(session, number, end):
                full = [n for n in sorted(heat) if n < number]
                held = [(n, page) for n in full if (page := self._known(session, n)) is not None]
                if len(held) == len(full):
                    at = page_bounds(session.shape, number)[0] if tail is None else tail.end
                    return Resume([*sinks, *held], at, end, tail, heat)
        return Resume(sinks, Position(session.shape.sinks), end)

    def _heats(self, session: Session, number: int, end: Position) -> Iterator[tuple[Heat, Tail | None]]:
        """The heat of the ring inside page `number`, where that is the tail, and at its beginning, as far as known."""
        assert session.ring is not None
        tail, first = session.tail, page_bounds(session.shape, number)[0]
        if tail is not None and tail.end < end and full_pages(session.shape, tail.end) == number:
            known = self.prefix.find(tail.key, session.tokens(first, tail.end))
            if known is not None and known.heat is not None:
                yield known.heat, tail
        last = self._known(session, number - 1) if number > session.shape.sink_pages else None
        if last is not None and last.heat is not None:
            yield session.ring.without_told(last.heat), None

    def resume(self, before: Session, found: Resume) -> Session:
        """Admit a session with the history that `found` was found for, up to `found.position` computed. `before`, whose
        history it is, leaves at the same time, so that one session's room is enough for both.

        Raises PoolFullError, changing nothing, when there is no room.
        """
        shared = [known.page for _, known in found.kept if known.page is not None]
        for page in shared:
            self.pool.share(page)
        if self.admitted(before):
            self.leave(before)
        session = before.up_to(before.id, found.end, found.position)
        try:
            self.admit(session)
        except Exception:
            for page in shared:
                self._release(page)
            raise
        lease, shape = self._leases[session.id], session.shape
        lease.full = full_pages(shape, found.position)
        if session.ring is not None and found.heat is not None:
            session.ring.take_up(found.heat, lease.full)
        missing = [(number, known) for number, known in found.kept if known.page is None]
        for number, known in found.kept:
            index = session.entry(number)
            session.page_pos[index] = page_bounds(shape, number)[0]
            if known.page is not None:
                session.table[index] = known.page
        for number, _ in missing:
            index = session.entry(number)
            session.table[index] = self.pool.take(PageId(lease.home + index))
            if number < kept_pages(self.pages, shape):
                self.pages.begin(session.table[index])
            self.prefix.bring_back(session.page_keys[number], session.table[index])
        if found.tail is not None:
            self._write_on(session, found.tail)
        session.tail = None
        self._touch(session, lease.full)
        self.found_tokens += max(0, found.position - (session.floor - shape.sinks))
        _see_again(session, found)
        return session

    def _write_on(self, session: Session, tail: Tail) -> None:
        """Take a page for the tail, as it was."""
        index = session.entry(full_pages(session.shape, tail.end))
        page = session.table[index] = self.pool.take(PageId(self._leases[session.id].home + index))
        session.page_pos[index] = session.shape.page_start(Position(tail.end - 1))
        self.pages.begin(page)
        self.prefix.copy_back(tail.key, page)

    def check(self, sessions: Iterable[Session]) -> None:
        """Raise AssertionError when a page is lost, counted twice, or known where it is not."""
        sessions = list(sessions)
        self.pool.check(self._held(session) for session in sessions)
        self.prefix.check()
        self.pages.check(frozenset(map(PageId, range(self.pool.total))) - self.pool.free)
        if self.prefix.resident & self.pool.free:
            raise AssertionError(f"free pages are known: {sorted(self.prefix.resident & self.pool.free)}")
        held = {session.id for session in sessions if self._held(session)}
        if not held <= self._leases.keys():
            raise AssertionError(f"sessions {sorted(held - self._leases.keys())} hold pages and were not admitted")
        for session in sessions:
            self._check_known(session)

    def _check_known(self, session: Session) -> None:
        for index, page in enumerate(session.table):
            key = self.prefix.key(page)
            if key is None:
                continue
            number = full_pages(session.shape, session.page_pos[index])
            if key not in session.page_keys[number : number + 1]:
                raise AssertionError(f"page {page} holds positions from {session.page_pos[index]}, known as others")

    def _held(self, session: Session) -> list[PageId]:
        return [page for page in (*session.table, *session.claimed.values()) if page != NO_PAGE]

    def _keys(self, session: Session, count: int) -> list[PageKey]:
        """The keys of the first `count` pages, and maybe more; each is computed once for a history and what it grows
        to, so that at a million tokens only new pages cost."""
        keys = session.page_keys
        for number in range(len(keys), count):
            keys.append(self._key(session, number, session.held(number)[1]))
        return keys

    def _key(self, session: Session, number: int, end: Position) -> PageKey:
        # A page that was dropped counts as one with no token: the chain so tells one floor from another.
        first, keys = session.held(number)[0], session.page_keys
        parent = keys[number - 1] if number else root_key(self._model, session.policy, session.shape)
        return page_key(parent, session.tokens(first, end), session.starts_within(first, end))

    def _know(self, session: Session, number: int) -> None:
        """A full page that the session holds may be found, and has an image."""
        first, end = session.held(number)
        if first < end and (number < session.shape.sink_pages or session.policy is not Policy.RECOMPUTE):
            key, page = self._keys(session, number + 1)[number], session.table[session.entry(number)]
            self.prefix.add(key, session.tokens(first, end), page, self._heat(session, end))

    def _heat(self, session: Session, t: Position) -> Heat | None:
        """The heat of a session's ring after t tokens: known of no other point than the one where it stands, and not
        while a page is missing that was not taken up, see `ScoredRing.without_told`."""
        if session.ring is None or t != session.position:
            return None
        begun = full_pages(session.shape, Position(t - 1)) + 1 - session.shape.sink_pages
        return dict(session.ring.heat) if len(session.ring.heat) == min(begun, session.shape.ring_pages) else None

    def _known(self, session: Session, number: int) -> KnownPage | None:
        key = session.page_keys[number]
        if not self.prefix.may_know(key):
            return None
        return self.prefix.find(key, session.tokens(*session.held(number)))

    def _touch(self, session: Session, full: int) -> None:
        # A chat goes on from the pages of its ring and its sinks: those that left its window are dropped before them,
        # and then its tail, without which it computes less than a page again.
        sinks, keys = session.shape.sink_pages, session.page_keys
        tail = [] if session.tail is None else [session.tail.key]
        self.prefix.touch((*keys[max(sinks, full - self.prefix.image_capacity) : full], *tail))
        ring = (keys[number] for number in _ring_pages(session, full) if number < len(keys))
        self.prefix.touch((*ring, *keys[: min(full, sinks)]))

    def _release(self, page: PageId) -> None:
        if self.pool.release(page):
            self.prefix.lost(page)
            self.pages.forget(page)


def _ring_pages(session: Session, full: int) -> list[int]:
    """The pages before `full` that a session's ring holds, by number, the oldest first."""
    if session.ring is not None:
        return [number for number in session.ring.live if number < full]
    return list(range(max(session.shape.sink_pages, full - session.shape.ring_pages), full))


def kept_pages(pages: Pages, shape: WindowShape) -> int:
    """How many pages of a session, its first sink pages, are kept as computed when others are packed."""
    return min(pages.kept_pages, shape.sink_pages)


def _page_starts(session: Session, count: int) -> list[Position]:
    """Of the next `count` positions, those at which writing to a page begins."""
    tokens = map(Position, range(session.position, session.position + count))
    return [t for t in tokens if session.shape.offset(t) == 0 or t == session.floor]


def _see_again(session: Session, found: Resume) -> None:
    """The window of the last computed token, as far as its pages came back."""
    if session.ring is not None:
        session.trim()
        return
    last = Position(found.position - 1)
    if last < session.shape.sinks:
        return
    numbers = [number for number, _ in found.kept] + ([full_pages(session.shape, last)] if found.tail else [])
    ring = [session.held(number)[0] for number in numbers if number >= session.shape.sink_pages]
    session.start = Position(max(session.window_at(last), min(ring, default=session.start)))
    session.trim()
