"""Every page there is, allocated once at load. Nothing in the engine allocates KV memory afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.types import PageId, PoolFullError


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Pages by state; `free + held == total` always."""

    total: int
    free: int
    held: int
    bytes: int


class Pool:
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
        self.pages = pages
        self.page_size = page_size
        self._free: set[PageId] = {PageId(page) for page in range(pages)}
        self._held: set[PageId] = set()

    @property
    def bytes(self) -> int:
        """Bytes of K and V together."""
        return 2 * self.k.numel() * self.k.element_size()

    @property
    def free(self) -> frozenset[PageId]:
        """Pages nobody holds."""
        return frozenset(self._free)

    def take(self, count: int) -> list[PageId]:
        """Take `count` pages, ascending, in one consecutive run where there is one.

        Raises PoolFullError, taking nothing, when fewer are free.
        """
        if count > len(self._free):
            raise PoolFullError(
                f"the pool has {len(self._free)} of {self.pages} pages free and {count} are needed: "
                "close a chat or allow fewer tokens a chat"
            )
        free = sorted(self._free)
        run = next(
            (free[i : i + count] for i in range(len(free) - count + 1) if free[i + count - 1] - free[i] == count - 1),
            free[:count],
        )
        self._free.difference_update(run)
        self._held.update(run)
        return run

    def give_back(self, pages: list[PageId]) -> None:
        """Return pages. Raises AssertionError when one of them is not held (a double free)."""
        unknown = [page for page in pages if page not in self._held]
        if unknown or len(set(pages)) != len(pages):
            raise AssertionError(f"pages {unknown or pages} given back but not held once")
        self._held.difference_update(pages)
        self._free.update(pages)

    def stats(self) -> PoolStats:
        """Pages by state."""
        return PoolStats(self.pages, len(self._free), len(self._held), self.bytes)

    def check(self, held_by_sessions: list[PageId]) -> None:
        """Raise AssertionError with both sides when free + held != total, or a page has two owners or none."""
        total = len(self._free) + len(self._held)
        if total != self.pages or self._free & self._held:
            raise AssertionError(f"{len(self._free)} free + {len(self._held)} held != {self.pages} pages")
        if sorted(held_by_sessions) != sorted(self._held):
            raise AssertionError(
                f"sessions hold {len(held_by_sessions)} pages ({len(set(held_by_sessions))} distinct), "
                f"the pool says {len(self._held)}"
            )

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """K and V of one layer by slot: two views `[kv_heads, pages * page_size, head_dim]`."""
        heads, dim = self.k.shape[1], self.k.shape[4]
        return self.k[index].view(heads, -1, dim), self.v[index].view(heads, -1, dim)
