"""KV memory in which a full page is kept quantised, once, and never touched again until its page is recycled.

Two stores, both allocated at load. Every page has a packed place. Beside them lie frames, pages as computed: one for
each page that is being written, and for the first sink pages of each session. A page gets a frame when it is begun
and gives it back when it is full, so the page table never changes by it. Frames and packed pages both hold rows that
are rotated already (see `formats.rotation`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat, PageFormat, page_format
from engine.cache.formats.rotation import rotation
from engine.cache.formats.rows import SCALE, Quantiser, Rows
from engine.cache.pages import Pages
from engine.model.config import ModelConfig
from engine.types import PageId
from kernels.page_quantise import quantise_rows
from kernels.runtime import serves

SINK_TOKENS = 128
"""Sinks of a session that are kept as computed; of a longer system prompt the rest is quantised like any page."""
_TILE_TOKENS = 256  # packed slots that attention unpacks at once: 196 kB of float32 for 3 heads of 64


class PackedRows:
    """Keys or values of every page, packed: `codes` uint8 `[layers, kv_heads, slots, row_bytes]` and `scales` bfloat16
    `[layers, kv_heads, slots]`. `magnitudes` are the codebook's, where there is one."""

    def __init__(self, quantiser: Quantiser, shape: tuple[int, int, int], head_dim: int, device: torch.device) -> None:
        self.quantiser = quantiser
        magnitudes = quantiser.magnitudes(head_dim)
        self.magnitudes = None if magnitudes is None else magnitudes.to(device)
        self.codes = torch.zeros((*shape, quantiser.row_bytes(head_dim)), dtype=torch.uint8, device=device)
        self.scales = torch.zeros(shape, dtype=SCALE, device=device)

    @property
    def bytes(self) -> int:
        """Codes and scales."""
        return self.codes.nbytes + self.scales.nbytes

    def pack(self, slots: Tensor, rows: Tensor) -> None:
        """Quantise rows of all layers, `[layers, kv_heads, slots, head_dim]`, into these slots, int64 `[slots]`."""
        self._pack(slots, rows.flatten(0, 1), self.codes.flatten(0, 1), self.scales.flatten(0, 1))

    def pack_layer(self, layer: int, slots: Tensor, rows: Tensor) -> Rows:
        """Quantise rows of a layer, `[kv_heads, slots, head_dim]`, into these slots; returns what lies there now."""
        codes, scales = self.codes[layer], self.scales[layer]
        self._pack(slots, rows, codes, scales)
        return Rows(codes[:, slots], scales[:, slots])

    def _pack(self, slots: Tensor, rows: Tensor, codes: Tensor, scales: Tensor) -> None:
        if serves(rows.device):
            quantise_rows(rows, slots, codes, scales, self.quantiser.packing, magnitudes=self.magnitudes)
            return
        packed = self.quantiser.quantise(rows)
        codes[:, slots], scales[:, slots] = packed.codes, packed.scales

    def memory_of(self, first: int, end: int) -> list[Tensor]:
        """The memory of slots [first, end) of all layers, codes and scales."""
        return [self.codes[:, :, first:end], self.scales[:, :, first:end]]


class PackedPages(Pages):
    """`count` pages kept in the format `chosen`; `k` and `v` are the frames, not the pages.

    `kept_pages`: so many sink pages of a session keep their frames.
    """

    def __init__(
        self,
        chosen: PageFormat,
        *,
        sessions: int,
        layers: int,
        kv_heads: int,
        head_dim: int,
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        kept_pages = min(-(-SINK_TOKENS // page_size), pages // sessions)
        # One page more than the sessions write at: a prompt's step begins its last page before its first is full.
        frames = sessions * (kept_pages + 1) + 1
        super().__init__(
            layers=layers,
            kv_heads=kv_heads,
            head_dim=head_dim,
            pages=frames,
            page_size=page_size,
            dtype=dtype,
            device=device,
        )
        self.count, self.kept_pages = pages, kept_pages
        shape = (layers, kv_heads, pages * page_size)
        self.keys = PackedRows(chosen.keys, shape, head_dim, device)
        self.values = PackedRows(chosen.values, shape, head_dim, device)
        tile = max(1, _TILE_TOKENS // page_size) * page_size
        self.tile = torch.empty((kv_heads, tile, head_dim), dtype=dtype, device=device)
        self.rotation = rotation(head_dim).to(device)
        self._frame_of: dict[PageId, int] = {}
        self._free_frames = list(reversed(range(frames)))

    @property
    def bytes(self) -> int:
        """Packed pages, frames and the tile that pages are unpacked into."""
        return self.keys.bytes + self.values.bytes + self.k.nbytes + self.v.nbytes + self.tile.nbytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one packed page, all layers."""
        return (self.keys.bytes + self.values.bytes) // self.count

    @property
    def framed(self) -> frozenset[PageId]:
        """Pages that lie in a frame."""
        return frozenset(self._frame_of)

    def begin(self, page: PageId) -> None:
        """The page is about to be written: give it a frame. Its packed place is left as it is until it is full."""
        if page not in self._frame_of:
            self._frame_of[page] = self._free_frames.pop()

    def forget(self, page: PageId) -> None:
        """What the page's frame holds is not needed any more."""
        frame = self._frame_of.pop(page, None)
        if frame is not None:
            self._free_frames.append(frame)

    def pack(self, page: PageId, tokens: int) -> None:
        """Quantise the first `tokens` of a page, all layers, from its frame into its packed place."""
        frame, low = self._frame_of[page], page * self.page_size
        slots = torch.arange(low, low + tokens, device=self.k.device)
        self.keys.pack(slots, self.k[:, :, frame, :tokens])
        self.values.pack(slots, self.v[:, :, frame, :tokens])

    def frame(self, page: PageId) -> int:
        """Its frame, a page's number in `k` and `v`. Raises KeyError when the page has none."""
        return self._frame_of[page]

    def frame_slot(self, slot: int) -> int:
        """Where a slot of a page that has a frame lies in `layer`. Raises KeyError when the page has none."""
        return self._frame_of[PageId(slot // self.page_size)] * self.page_size + slot % self.page_size

    def images(self, count: int) -> Tensor:
        """Host memory for `count` packed pages, `[count, page_bytes]`."""
        return torch.empty((count, self.page_bytes), dtype=torch.uint8, pin_memory=self.k.device.type == "cuda")

    def as_computed(self, held: int) -> int:
        """How many of the pages that are held lie in frames."""
        return len(self._frame_of)

    def image_parts(self, page: PageId) -> int:
        """How many images a page takes: one that is kept as computed takes several."""
        held = sum(memory.nbytes for memory in self._memory(page))
        return -(-held // self.page_bytes)

    def save(self, page: PageId, images: Sequence[Tensor]) -> None:
        """Copy a page into its images."""
        held = torch.cat([memory.contiguous().view(torch.uint8).flatten() for memory in self._memory(page)])
        for image, part in zip(images, torch.split(held, self.page_bytes), strict=True):
            image[: len(part)].copy_(part, non_blocking=True)

    def restore(self, images: Sequence[Tensor], page: PageId) -> None:
        """Copy images back into a page, which has a frame when it had one as it was saved."""
        held, first = torch.cat([image.to(self.k.device, non_blocking=True) for image in images]), 0
        for memory in self._memory(page):
            part = held[first : first + memory.nbytes]
            memory.copy_(part.view(memory.dtype).view(memory.shape))
            first += memory.nbytes

    def check(self, held: frozenset[PageId]) -> None:
        """Raise AssertionError when a frame is lost, or belongs to a page that nobody holds."""
        frames = [*self._frame_of.values(), *self._free_frames]
        if sorted(frames) != list(range(self.k.shape[2])):
            raise AssertionError(f"{len(self._frame_of)} frames in use + {len(self._free_frames)} free: not each once")
        if not self.framed <= held:
            raise AssertionError(f"pages {sorted(self.framed - held)} have frames and are held by nobody")

    def _memory(self, page: PageId) -> list[Tensor]:
        frame = self._frame_of.get(page)
        if frame is not None:
            return [self.k[:, :, frame], self.v[:, :, frame]]
        slots = page * self.page_size, (page + 1) * self.page_size
        return [*self.keys.memory_of(*slots), *self.values.memory_of(*slots)]


def pages_for(
    name: KvFormat,
    model: ModelConfig,
    *,
    sessions: int,
    quota_pages: int,
    page_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Pages:
    """The memory for pages kept in the format `name`, of `dtype` as long as they are not quantised.

    Raises UnsupportedModelError when the model does not allow it.
    """
    chosen, count = page_format(name, model.head_dim), sessions * quota_pages
    shape = {"layers": model.layers, "kv_heads": model.kv_heads, "head_dim": model.head_dim, "pages": count}
    if chosen is None:
        return Pages(**shape, page_size=page_size, dtype=dtype, device=device)
    return PackedPages(chosen, sessions=sessions, **shape, page_size=page_size, dtype=dtype, device=device)
