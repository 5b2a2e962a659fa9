"""Who holds which page. Ids and counts only: the memory is in pages.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from engine.types import PageId, PoolFullError


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Pages by state; `free + private + shared == total` always."""

    total: int
    free: int
    private: int
    shared: int


class Pool:
    """Pages by reference count, and room for a fixed number of sessions.

    Admission charges a session its whole quota, shared pages included. All sessions together therefore never hold
    more distinct pages than there are: whoever must leave a shared page, or has not taken one yet, finds a free one.

    A session's home is a run of consecutive pages that it prefers, so that its window can be read in few pieces.
    """

    def __init__(self, *, sessions: int, quota_pages: int) -> None:
        self.total = sessions * quota_pages
        self._quota_pages = quota_pages
        self._homes = [PageId(first) for first in range(0, self.total, quota_pages)]
        self._free = {PageId(page) for page in range(self.total)}
        self._holders = [0] * self.total

    @property
    def free(self) -> frozenset[PageId]:
        """Pages nobody holds."""
        return frozenset(self._free)

    def is_free(self, page: PageId) -> bool:
        """Whether nobody holds the page."""
        return page in self._free

    @property
    def room(self) -> int:
        """Sessions that can still be admitted."""
        return len(self._homes)

    def admit(self) -> PageId:
        """Charge one session's quota; returns the first page of its home. Raises PoolFullError when no room is left."""
        if not self._homes:
            raise PoolFullError(
                f"all {self.total} pages are promised to chats ({self._quota_pages} each): stop or close a chat, "
                "or allow fewer tokens a chat"
            )
        return self._homes.pop(0)

    def leave(self, home: PageId) -> None:
        """Give a session's room back; its pages must have been released. Raises AssertionError when it has no room."""
        if home in self._homes or home % self._quota_pages:
            raise AssertionError(f"{home} is no home of a session")
        self._homes = sorted([*self._homes, home])

    def take(self, preferred: PageId) -> PageId:
        """Take one free page, `preferred` if it is free."""
        page = preferred if preferred in self._free else min(self._free)
        self._free.remove(page)
        self._holders[page] = 1
        return page

    def share(self, page: PageId) -> None:
        """One more holder. Raises AssertionError when nobody holds the page."""
        if not self._holders[page]:
            raise AssertionError(f"page {page} is free and cannot be shared")
        self._holders[page] += 1

    def release(self, page: PageId) -> bool:
        """One holder fewer; True when the page is free now. Raises AssertionError on a double free."""
        if not self._holders[page]:
            raise AssertionError(f"page {page} was given back but nobody holds it")
        self._holders[page] -= 1
        if not self._holders[page]:
            self._free.add(page)
        return not self._holders[page]

    def holders(self, page: PageId) -> int:
        """How many page tables name this page."""
        return self._holders[page]

    def stats(self) -> PoolStats:
        """Pages by state."""
        shared = sum(count > 1 for count in self._holders)
        return PoolStats(self.total, len(self._free), self.total - len(self._free) - shared, shared)

    def check(self, tables: Iterable[Iterable[PageId]]) -> None:
        """Raise AssertionError with both sides when the page tables and the counts disagree."""
        named = Counter(page for table in tables for page in table)
        for page, holders in enumerate(self._holders):
            if named[PageId(page)] != holders or (holders == 0) != (PageId(page) in self._free):
                raise AssertionError(
                    f"page {page}: {named[PageId(page)]} page tables name it, the pool counts {holders} holders"
                    + (" and lists it as free" if PageId(page) in self._free else "")
                )
        if sum(named.values()) != sum(self._holders):
            raise AssertionError(f"tables name {sum(named.values())} pages, the pool counts {sum(self._holders)}")
