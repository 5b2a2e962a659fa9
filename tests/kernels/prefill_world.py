"""A prompt's chunk on a paged cache that the ring rule filled, NaN wherever no token of the chunk may look."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tests.kernels.conftest import Chat, Sizes, start_of


@dataclass(frozen=True)
class Chunk:
    """Tokens [first, first + tokens) of a session; `native` is the layer's own window, in tokens."""

    sinks: int
    ring_pages: int
    first: int
    tokens: int
    raised: int = 0
    native: int = 1 << 40


@dataclass(frozen=True)
class Prompt:
    """Arguments of `paged_prefill`, and the keys and values of all positions."""

    q_window: Tensor
    q_sink: Tensor
    k: Tensor
    v: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_table: Tensor
    page_pos: Tensor
    sink_tokens: Tensor
    start: Tensor
    position: Tensor
    sink_start: Tensor
    keys: Tensor
    values: Tensor

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        return (
            self.q_window, self.q_sink, self.k, self.v, self.k_pages, self.v_pages, self.page_table, self.page_pos,
            self.sink_tokens, self.start, self.position,
        )  # fmt: skip

    def to(self, device: str) -> Prompt:
        return replace(self, **{name: tensor.to(device) for name, tensor in vars(self).items()})


def make_prompt(sizes: Sizes, chunk: Chunk, seed: int = 0) -> Prompt:
    """Pages in random order; stale slots, unseen tokens and free pages hold NaN."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(sizes.dtype)

    p, end = sizes.page_size, chunk.first + chunk.tokens
    keys, values = (random(end, sizes.kv_heads, sizes.head_dim) for _ in range(2))
    own = range(chunk.first, end)
    starts = [start_of(Chat(chunk.sinks, chunk.ring_pages, t, chunk.raised), p) for t in own]
    starts = [
        max(start, t - chunk.native + 1) if t >= chunk.sinks else start for t, start in zip(own, starts, strict=True)
    ]
    sink_starts = [max(0, min(chunk.sinks, t - chunk.native + 1)) for t in own]
    sink_pages = -(-chunk.sinks // p)
    quota = sink_pages + chunk.ring_pages
    order = torch.randperm(quota + 2, generator=generator)[:quota]
    k_pages = torch.full((sizes.kv_heads, quota + 2, p, sizes.head_dim), float("nan"), dtype=sizes.dtype)
    v_pages = k_pages.clone()
    page_pos = torch.full((quota,), -1, dtype=torch.int64)
    for t in range(chunk.first):
        in_sinks = t < chunk.sinks
        since = t if in_sinks else t - chunk.sinks
        entry = since // p if in_sinks else sink_pages + since // p % chunk.ring_pages
        if since % p == 0:
            k_pages[:, order[entry]] = v_pages[:, order[entry]] = float("nan")
        page_pos[entry] = t - since % p
        if t >= min(sink_starts if in_sinks else starts):
            k_pages[:, order[entry], since % p], v_pages[:, order[entry], since % p] = keys[t], values[t]
    q_window, q_sink = (random(chunk.tokens, sizes.q_heads, sizes.head_dim) for _ in range(2))
    return Prompt(
        q_window=q_window,
        # A sink sees other sinks from its own position: both rotations are the same.
        q_sink=q_sink if chunk.first >= chunk.sinks else q_window,
        k=torch.stack((keys, values), dim=1)[chunk.first :, 0],
        v=torch.stack((keys, values), dim=1)[chunk.first :, 1],
        k_pages=k_pages,
        v_pages=v_pages,
        page_table=order.to(torch.int32),
        page_pos=page_pos,
        sink_tokens=torch.tensor([chunk.sinks]),
        start=torch.tensor(starts),
        position=torch.tensor([chunk.first]),
        sink_start=torch.tensor(sink_starts),
        keys=keys,
        values=values,
    )


def dense_prompt(prompt: Prompt, scale: float, cap: float | None = None) -> Tensor:
    """One token, head and key at a time, from the whole history, in float32; knows nothing of pages."""
    tokens, q_heads, _ = prompt.q_window.shape
    group = q_heads // prompt.keys.shape[1]
    sinks, first = int(prompt.sink_tokens), int(prompt.position)
    out = torch.zeros(prompt.q_window.shape)
    for i in range(tokens):
        start, sink = int(prompt.start[i]), int(prompt.sink_start[i])
        visible = [j for j in range(first + i + 1) if sink <= j < sinks or j >= max(start, sinks)]
        for head in range(q_heads):
            keys = prompt.keys[visible, head // group].float()
            queries = [(prompt.q_sink if j < sinks else prompt.q_window)[i, head].float() for j in visible]
            scores = torch.stack([torch.dot(q, key) * scale for q, key in zip(queries, keys, strict=True)])
            scores = scores if cap is None else cap * torch.tanh(scores / cap)
            out[i, head] = scores.softmax(0) @ prompt.values[visible, head // group].float()
    return out
