"""A batch to rotate and store: rows cut out of one stacked projection, and pages full of NaN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.rope_store import Angles


@dataclass(frozen=True)
class Batch:
    """Arguments of `rope` and of `store`."""

    q: Tensor
    k: Tensor
    v: Tensor
    window: Angles
    sink: Angles | None
    slots: Tensor
    k_pages: Tensor
    v_pages: Tensor

    @property
    def to_rotate(self):
        return self.q, self.k, self.window, self.sink

    @property
    def to_store(self):
        return self.k, self.v, self.slots, self.k_pages, self.v_pages

    def to(self, device: str) -> Batch:
        def moved(each):
            if isinstance(each, Angles):
                return Angles(each.cos.to(device, copy=True), each.sin.to(device, copy=True))
            return None if each is None else each.to(device, copy=True)

        q_heads, kv_heads = self.q.shape[1], self.k.shape[1]
        stacked = torch.cat((self.q, self.k, self.v), dim=1).to(device)
        return Batch(
            stacked[:, :q_heads],
            stacked[:, q_heads : q_heads + kv_heads],
            stacked[:, q_heads + kv_heads :],
            *(moved(each) for each in (self.window, self.sink, self.slots, self.k_pages, self.v_pages)),
        )


def make_batch(
    tokens: int,
    heads: tuple[int, int],
    head_dim: int,
    rotary: int,
    two_phase: bool,
    dtype: torch.dtype = torch.float32,
    page_size: int = 16,
    seed: int = 0,
) -> Batch:
    """Random rows and angles; slots scattered over the pages, each once."""
    generator = torch.Generator().manual_seed(seed)
    q_heads, kv_heads = heads
    stacked = torch.randn(tokens, q_heads + 2 * kv_heads, head_dim, generator=generator).to(dtype)
    pages = tokens // page_size + 3
    k_pages = torch.full((kv_heads, pages, page_size, head_dim), float("nan"), dtype=dtype)

    def angles() -> Angles:
        turned = torch.rand(tokens, rotary // 2, generator=generator, dtype=torch.float64) * 6.3
        cos, sin = turned.cos(), turned.sin()
        return Angles(torch.cat((cos, cos), -1).float(), torch.cat((-sin, sin), -1).float())

    window = angles()
    return Batch(
        stacked[:, :q_heads],
        stacked[:, q_heads : q_heads + kv_heads],
        stacked[:, q_heads + kv_heads :],
        window,
        angles() if two_phase else None,
        torch.randperm(pages * page_size, generator=generator)[:tokens],
        k_pages,
        k_pages.clone(),
    )
