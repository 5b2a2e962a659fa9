"""Which pages are known, by all that led to them: prefix sharing across chats, forks, and chats that came back.

A page's K and V depend on every token before it, on where messages begin, and on the window's rule. Its key is
therefore a hash chained from the beginning (vLLM's automatic prefix caching does so over blocks of tokens); the page's
own tokens are compared on a hit, and its predecessor's by the predecessor's key.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from engine.cache.host_tier import HostTier, ImageId
from engine.heat import Heat
from engine.policy import Policy
from engine.types import PageId, PageKey
from engine.window import WindowShape

RULE_VERSION = 1
"""Changes when the visibility rule or the way positions are used does: pages of another rule are other pages."""


def root_key(model: str, policy: Policy, shape: WindowShape) -> PageKey:
    """The key before the first page: everything beside the tokens that changes K and V."""
    rule = f"{RULE_VERSION}|{model}|{policy}|{shape.page_size}|{shape.sinks}|{shape.ring_pages}"
    return PageKey(blake2b(rule.encode(), digest_size=16).digest())


def page_key(parent: PageKey, tokens: Sequence[int], starts: Sequence[int]) -> PageKey:
    """The key of a page that holds `tokens`; `starts` are the offsets at which messages begin in it."""
    digest = blake2b(parent, digest_size=16)
    digest.update(array("q", tokens).tobytes())
    digest.update(b"|")
    digest.update(array("q", starts).tobytes())
    return PageKey(digest.digest())


@dataclass(slots=True)
class KnownPage:
    """A full page: where it lies on the device, and where its image is. One of the two is always there. Of a page that
    was not full when its chat was swapped out there is only the image, and fewer tokens.

    `heat` is that of the ring after the last of these tokens, if the policy is to score pages.
    """

    tokens: tuple[int, ...]
    page: PageId | None
    image: ImageId | None
    heat: Heat | None = None


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """`known` pages can be had without computing them, `images` of them from the host."""

    known: int
    images: int
    image_capacity: int
    image_bytes: int


class PrefixCache:
    """Full pages by key. A page that is on the device may be shared; one that is not comes back from its image."""

    def __init__(self, host: HostTier) -> None:
        self._host = host
        self._known: dict[PageKey, KnownPage] = {}
        self._resident: dict[PageId, PageKey] = {}
        self._images: OrderedDict[PageKey, None] = OrderedDict()  # the least recently used first

    def find(self, key: PageKey, tokens: Sequence[int]) -> KnownPage | None:
        """The page of this key, when its tokens are these."""
        known = self._known.get(key)
        return known if known is not None and known.tokens == tuple(tokens) else None

    def may_know(self, key: PageKey) -> bool:
        """Whether `find` can succeed, which has to be given tokens."""
        return key in self._known

    @property
    def image_capacity(self) -> int:
        """Images that can be held at most."""
        return self._host.capacity

    def add(self, key: PageKey, tokens: Sequence[int], page: PageId, heat: Heat | None = None) -> None:
        """A page has become full: know it, and keep its image when there is room for any."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = KnownPage(tuple(tokens), page, None, heat)
            self._resident[page] = key
        elif known.page is None:
            self.on_device(key, page)
        known.heat = known.heat or heat
        self._keep_image(key, known, page)

    def keep(self, key: PageKey, tokens: Sequence[int], page: PageId, heat: Heat | None) -> None:
        """Keep an image of a page that goes on being written, when there is room for any: the image alone is known."""
        if self._host.may_hold(page):
            known = self._known.setdefault(key, KnownPage(tuple(tokens), None, None, heat))
            self._keep_image(key, known, page)

    def _keep_image(self, key: PageKey, known: KnownPage, page: PageId) -> None:
        if known.image is None and self._host.may_hold(page):
            while not self._host.has_room(page):
                self._drop_oldest_image()
            known.image = self._host.save(page)
        if known.image is not None:
            self._images[key] = None
            self._images.move_to_end(key)

    def on_device(self, key: PageKey, page: PageId) -> None:
        """A known page lies in `page` now."""
        self._known[key].page = page
        self._resident[page] = key

    def bring_back(self, key: PageKey, page: PageId) -> None:
        """Copy a known page's image into `page`."""
        self.copy_back(key, page)
        self.on_device(key, page)

    def copy_back(self, key: PageKey, page: PageId) -> None:
        """Copy the image of a page that was not full into `page`, which will be written further."""
        image = self._known[key].image
        assert image is not None
        self._host.restore(image, page)

    def lost(self, page: PageId) -> None:
        """The device page is about to be overwritten, or is free."""
        key = self._resident.pop(page, None)
        if key is None:
            return
        known = self._known[key]
        known.page = None
        if known.image is None:
            del self._known[key]

    def touch(self, keys: Iterable[PageKey]) -> None:
        """These pages were just of use; of them, the first is dropped first."""
        for key in keys:
            if key in self._images:
                self._images.move_to_end(key)

    @property
    def resident(self) -> frozenset[PageId]:
        """Device pages that hold a known page."""
        return frozenset(self._resident)

    def key(self, page: PageId) -> PageKey | None:
        """The key under which a device page is known."""
        return self._resident.get(page)

    def stats(self) -> PrefixStats:
        """What could be had without computing it."""
        return PrefixStats(len(self._known), len(self._images), self._host.capacity, self._host.bytes_used)

    def check(self) -> None:
        """Raise AssertionError when a known page is nowhere, or an image belongs to nobody or to two."""
        images = [known.image for known in self._known.values() if known.image is not None]
        held = self._host.held
        if not len(images) == len(set(images)) == len(self._images) == held:
            raise AssertionError(f"{len(images)} images are known, {len(self._images)} are listed, {held} are held")
        self._host.check()
        pages = {known.page: key for key, known in self._known.items() if known.page is not None}
        if pages != self._resident:
            raise AssertionError(f"{len(pages)} pages are known on the device, {len(self._resident)} are listed")
        if any(known.page is None and known.image is None for known in self._known.values()):
            raise AssertionError("a known page is neither on the device nor on the host")

    def _drop_oldest_image(self) -> None:
        key, _ = self._images.popitem(last=False)
        known = self._known[key]
        assert known.image is not None
        self._host.drop(known.image)
        known.image = None
        if known.page is None:
            del self._known[key]
