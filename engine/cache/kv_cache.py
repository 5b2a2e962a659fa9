"""What a session may do with pages: be admitted, write the next ones, find known ones again, leave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.cache.host_tier import HostTier
from engine.cache.pages import Pages
from engine.cache.pool import Pool
from engine.cache.prefix import KnownPage, PageKey, PrefixCache, page_key, root_key
from engine.session import NO_PAGE, Session
from engine.types import PageId, Position
from engine.window import WindowShape, window_start


@dataclass(slots=True)
class _Lease:
    """An admitted session: its home, and the keys of its full pages from the first."""

    home: PageId
    chain: list[PageKey]


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a history can be taken up: `chain` are the keys of all its full pages up to there, `kept` (page number,
    known page) of those that the next tokens see, and of the one before them where it is known."""

    chain: list[PageKey]
    kept: list[tuple[int, KnownPage]]
    position: Position


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
        self._leases[session.id] = _Lease(self.pool.admit(), [root_key(self._model, session.shape)])

    def admitted(self, session: Session) -> bool:
        """Whether the session may hold pages."""
        return session.id in self._leases

    def leave(self, session: Session) -> None:
        """Give everything back; full pages stay known by their images."""
        lease = self._leases.pop(session.id)
        self._touch(lease.chain, session.shape)
        for page in self._held(session):
            self._release(page)
        session.table = [NO_PAGE] * len(session.table)
        session.claimed.clear()
        self.pool.leave(lease.home)

    def claim(self, session: Session, count: int) -> None:
        """Make the pages of the next `count` tokens writable: an own page is used again where it lies, a shared one is
        left to the others. In a step, sessions that decode claim before the one that reads a prompt: the tokens of a
        prompt may still see what they replace, so it is let go of only by `settle`."""
        shape, home = session.shape, self._leases[session.id].home
        for t in _page_starts(shape, session.position, count):
            index = shape.table_index(t)
            page, own = session.table[index], PageId(home + index)
            moves_home = count == 1 and page != own and own in self.pool.free
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
        while (number := len(lease.chain) - 1) < full_pages(shape, session.position):
            tokens = session.past[slice(*page_bounds(shape, number))]
            lease.chain.append(_next_key(lease.chain[-1], session, number, tokens))
            page = session.table[table_entry(shape, number)]
            if number >= kept_pages(self.pages, shape):
                self.pages.forget(page)
            self.prefix.add(lease.chain[-1], tokens, page)
            self.prefix.touch(lease.chain[1 : shape.sink_pages + 1])

    def find(self, session: Session, end: Position) -> Resume:
        """The furthest point of the history [0, end) that known pages lead to, at least one token before its end."""
        shape, root = session.shape, root_key(self._model, session.shape)
        history = [*session.past, *session.pending]
        chain, known = [root], list[KnownPage | None]()
        for number in range(full_pages(shape, Position(end - 1))):
            tokens = history[slice(*page_bounds(shape, number))]
            chain.append(_next_key(chain[-1], session, number, tokens))
            known.append(self.prefix.find(chain[-1], tokens))
        sinks = shape.sink_pages
        if len(known) < sinks or None in known[:sinks]:
            return Resume([root], [], Position(0))
        until = len(known)
        while until > sinks and None in known[max(sinks, until - shape.ring_pages + 1) : until]:
            until -= 1
        # The oldest page of a full ring is recycled by the next token; it is held only for the meter.
        first = max(sinks, until - shape.ring_pages)
        kept = [(n, page) for n in (*range(sinks), *range(first, until)) if (page := known[n]) is not None]
        return Resume(chain[: until + 1], kept, Position(page_bounds(shape, until - 1)[1] if until else 0))

    def resume(self, session: Session, found: Resume, instead_of: Session | None = None) -> None:
        """Admit a session that has computed nothing, with the known pages `found` as its first. `instead_of` leaves at
        the same time, so that one session's room is enough for both.

        Raises PoolFullError, changing nothing, when there is no room.
        """
        shared = [known.page for _, known in found.kept if known.page is not None]
        for page in shared:
            self.pool.share(page)
        if instead_of is not None and self.admitted(instead_of):
            self.leave(instead_of)
        try:
            self.admit(session)
        except Exception:
            for page in shared:
                self._release(page)
            raise
        lease, shape = self._leases[session.id], session.shape
        lease.chain = list(found.chain)
        missing = [(number, known) for number, known in found.kept if known.page is None]
        for number, known in found.kept:
            index = table_entry(shape, number)
            session.page_pos[index] = page_bounds(shape, number)[0]
            if known.page is not None:
                session.table[index] = known.page
        for number, _ in missing:
            index = table_entry(shape, number)
            session.table[index] = self.pool.take(PageId(lease.home + index))
            if number < kept_pages(self.pages, shape):
                self.pages.begin(session.table[index])
            self.prefix.bring_back(found.chain[number + 1], session.table[index])
        self._touch(found.chain, shape)
        self.found_tokens += found.position
        _take_up(session, found)

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
            if key not in self._leases[session.id].chain[number + 1 : number + 2]:
                raise AssertionError(f"page {page} holds positions from {session.page_pos[index]}, known as others")

    def _held(self, session: Session) -> list[PageId]:
        return [page for page in (*session.table, *session.claimed.values()) if page != NO_PAGE]

    def _touch(self, chain: list[PageKey], shape: WindowShape) -> None:
        # A chat goes on from its newest pages and its sinks: those that left its window are dropped before them.
        self.prefix.touch((*chain[shape.sink_pages + 1 :], *chain[1 : shape.sink_pages + 1]))

    def _release(self, page: PageId) -> None:
        if self.pool.release(page):
            self.prefix.lost(page)
            self.pages.forget(page)


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


def kept_pages(pages: Pages, shape: WindowShape) -> int:
    """How many pages of a session, its first sink pages, are kept as computed when others are packed."""
    return min(pages.kept_pages, shape.sink_pages)


def table_entry(shape: WindowShape, number: int) -> int:
    """Index into the page table of a page number."""
    return number if number < shape.sink_pages else shape.sink_pages + (number - shape.sink_pages) % shape.ring_pages


def _page_starts(shape: WindowShape, first: Position, count: int) -> list[Position]:
    """The positions in [first, first + count) at which a page begins."""
    return [t for t in map(Position, range(first, first + count)) if shape.offset(t) == 0]


def _next_key(parent: PageKey, session: Session, number: int, tokens: list[int]) -> PageKey:
    first, end = page_bounds(session.shape, number)
    return page_key(parent, tokens, session.starts_within(first, end))


def _take_up(session: Session, found: Resume) -> None:
    """The session's tokens up to `found.position` are computed."""
    session.past, session.pending = session.pending[: found.position], session.pending[found.position :]
    last = Position(found.position - 1)
    if last < session.shape.sinks:
        return
    boundaries = [span.first for span in session.messages]
    ring = [page_bounds(session.shape, n)[0] for n, _ in found.kept if n >= session.shape.sink_pages]
    session.start = Position(max(window_start(session.shape, last, boundaries), min(ring, default=session.start)))
    session.trim()
