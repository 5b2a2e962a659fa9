"""Page images in host memory, bounded: what left the window, or a chat that was swapped out, comes back by copy."""

from __future__ import annotations

from typing import NewType

from engine.cache.pages import Pages
from engine.types import PageId

ImageId = NewType("ImageId", int)
"""A page image's place in the host tier."""


class HostTier:
    """Room for `images` page images, allocated once. Which page an image holds is known to the prefix cache."""

    def __init__(self, pages: Pages, images: int) -> None:
        self._pages = pages
        self._memory = pages.images(images)
        self._free = list(reversed(range(images)))
        self._held: dict[ImageId, list[int]] = {}
        self.capacity = images

    @property
    def held(self) -> int:
        """Images that are held."""
        return len(self._held)

    @property
    def bytes_used(self) -> int:
        """Bytes of the images that are held."""
        return (self.capacity - len(self._free)) * self._pages.page_bytes

    def has_room(self, page: PageId) -> bool:
        """Whether the page can be saved; if not, images must be dropped first."""
        return self._pages.image_parts(page) <= len(self._free)

    def may_hold(self, page: PageId) -> bool:
        """Whether the page could be saved if no other image were held."""
        return self._pages.image_parts(page) <= self.capacity

    def save(self, page: PageId) -> ImageId:
        """Copy a page to the host. Raises IndexError when there is no room."""
        parts = [self._free.pop() for _ in range(self._pages.image_parts(page))]
        self._pages.save(page, [self._memory[part] for part in parts])
        self._held[ImageId(parts[0])] = parts
        return ImageId(parts[0])

    def restore(self, image: ImageId, page: PageId) -> None:
        """Copy an image into a page; the image stays."""
        self._pages.restore([self._memory[part] for part in self._held[image]], page)

    def drop(self, image: ImageId) -> None:
        """Forget an image."""
        self._free += self._held.pop(image)

    def check(self) -> None:
        """Raise AssertionError when room is lost or given twice."""
        parts = [*self._free, *(part for held in self._held.values() for part in held)]
        if sorted(parts) != list(range(self.capacity)):
            raise AssertionError(f"{len(self._free)} free parts and {len(self._held)} images: not each part once")
