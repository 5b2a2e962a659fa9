"""The KV memory itself: every page there is, allocated once at load. Nothing in the engine allocates any afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.types import PageId


def as_held(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows in the type of the pages that hold them: what is finite stays so, what is not stays what it is."""
    if rows.dtype == dtype:
        return rows
    if dtype == torch.float16:
        most = torch.finfo(dtype).max
        rows = torch.where(rows.isinf(), rows, rows.clamp(-most, most))
    return rows.to(dtype)


class Pages:
    """K and V for all layers, `[layers, kv_heads, pages, page_size, head_dim]` each.

    Heads stand outside pages so that, for one layer and head, a run of consecutive pages is one contiguous
    matrix: on a CPU the window is read in place, without a copy per token.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (layers, kv_heads, pages, page_size, head_dim)
        self.k = torch.zeros(shape, dtype=dtype, device=device)
        self.v = torch.zeros(shape, dtype=dtype, device=device)
        self.count = pages
        self.page_size = page_size
        self.kept_pages = 0  # of no account where every page stays as it was computed

    @property
    def bytes(self) -> int:
        """Bytes of K and V together."""
        return 2 * self.k.numel() * self.k.element_size()

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, all layers, K and V."""
        return self.bytes // self.count

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """K and V of one layer by slot: two views `[kv_heads, pages * page_size, head_dim]`."""
        heads, dim = self.k.shape[1], self.k.shape[4]
        return self.k[index].view(heads, -1, dim), self.v[index].view(heads, -1, dim)

    def kept(self, rows: Tensor) -> Tensor:
        """Rows as they will be read back, in their own type: what a token sees must not depend on whether it is stored
        before or after."""
        return rows if rows.dtype == self.k.dtype else as_held(rows, self.k.dtype).to(rows.dtype)

    def store(self, layer: int, slots: Tensor | int, k: Tensor, v: Tensor) -> None:
        """Keys and values of a layer to their slots: `[kv_heads, slots, head_dim]`, or of one slot
        `[kv_heads, head_dim]`."""
        for held, rows in zip(self.layer(layer), (k, v), strict=True):
            held[:, slots] = as_held(rows, held.dtype)

    def images(self, count: int) -> Tensor:
        """Host memory for `count` page images, `[count, 2, layers, kv_heads, page_size, head_dim]`; pinned beside a
        GPU, so that copies need not wait. Plain memory costs nothing until it is written."""
        layers, heads, _, size, dim = self.k.shape
        pinned = self.k.device.type == "cuda"
        return torch.empty((count, 2, layers, heads, size, dim), dtype=self.k.dtype, pin_memory=pinned)

    def begin(self, page: PageId) -> None:
        """The page is about to be written, or restored, as computed."""

    def forget(self, page: PageId) -> None:
        """The page as computed is not needed any more: it is free, or kept in another form."""

    def as_computed(self, held: int) -> int:
        """How many of `held` pages lie in the model's type."""
        return held

    def image_parts(self, page: PageId) -> int:
        """How many images the page takes."""
        return 1

    def save(self, page: PageId, images: Sequence[Tensor]) -> None:
        """Copy a page into its image `[2, layers, kv_heads, page_size, head_dim]`, on the device's own stream: decode
        does not wait, and a later `restore` is ordered behind it."""
        (image,) = images
        image[0].copy_(self.k[:, :, page], non_blocking=True)
        image[1].copy_(self.v[:, :, page], non_blocking=True)

    def restore(self, images: Sequence[Tensor], page: PageId) -> None:
        """Copy an image back into a page."""
        (image,) = images
        self.k[:, :, page].copy_(image[0], non_blocking=True)
        self.v[:, :, page].copy_(image[1], non_blocking=True)

    def check(self, held: frozenset[PageId]) -> None:
        """Raise AssertionError when the memory disagrees with the set of pages that are held."""
