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
        self._free = [ImageId(image) for image in reversed(range(images))]
        self.capacity = images

    @property
    def free(self) -> int:
        """Images that can be saved before one must be dropped."""
        return len(self._free)

    @property
    def bytes_used(self) -> int:
        """Bytes of the images that are held."""
        return (self.capacity - len(self._free)) * self._pages.page_bytes

    def save(self, page: PageId) -> ImageId:
        """Copy a page to the host. Raises IndexError when there is no room: drop an image first."""
        image = self._free.pop()
        self._pages.save(page, self._memory[image])
        return image

    def restore(self, image: ImageId, page: PageId) -> None:
        """Copy an image into a page; the image stays."""
        self._pages.restore(self._memory[image], page)

    def drop(self, image: ImageId) -> None:
        """Forget an image."""
        self._free.append(image)
