"""A paged cache filled by the ring rule with NaN in every slot that must not be read, and attention without pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor


@dataclass(frozen=True)
class Chat:
    """One session: its sinks, its ring, the query's position, and by how much start is raised past the page edge."""

    sinks: int
    ring_pages: int
    position: int
    raised: int = 0


@dataclass(frozen=True)
class Sizes:
    page_size: int = 16
    q_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class World:
    """Arguments of `paged_decode` in its order, and per session the keys and values of all positions."""

    q_window: Tensor
    q_sink: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_table: Tensor
    page_pos: Tensor
    sink_tokens: Tensor
    start: Tensor
    position: Tensor
    keys: tuple[Tensor, ...] = ()
    values: tuple[Tensor, ...] = ()

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        return (
            self.q_window, self.q_sink, self.k_pages, self.v_pages, self.page_table, self.page_pos,
            self.sink_tokens, self.start, self.position,
        )  # fmt: skip

    def to(self, device: str) -> World:
        moved = {name: tensor.to(device) for name, tensor in vars(self).items() if isinstance(tensor, Tensor)}
        return replace(self, **moved)


def start_of(chat: Chat, page_size: int) -> int:
    """First visible ring position: the page edge, raised, but never past the query."""
    pages_behind = (chat.position - chat.sinks) // page_size - chat.ring_pages + 1
    edge = max(chat.sinks, chat.sinks + pages_behind * page_size)
    return max(chat.sinks, min(edge + chat.raised, chat.position))


def edges(sinks: int, ring_pages: int, page_size: int) -> list[int]:
    """Positions at which something changes: sink edges, page edges, the window's edge, and several windows later."""
    full = sinks + ring_pages * page_size
    near = {0, sinks - 1, sinks, sinks + page_size - 1, sinks + page_size, full - 1, full, full + 1}
    return sorted(near | {full + page_size, full + 3 * ring_pages * page_size + 7})


def _build(sizes: Sizes, chats: list[Chat], seed: int = 0) -> World:
    """Pages handed out in random order; slots that the query does not see, and pages of nobody, hold NaN."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(sizes.dtype)

    p = sizes.page_size
    quota = [-(-chat.sinks // p) + chat.ring_pages for chat in chats]
    table_len, pages = max(quota) + 1, sum(quota) + 2  # a padded table entry, and two free pages
    order = torch.randperm(pages, generator=generator).tolist()
    k_pages = torch.full((sizes.kv_heads, pages, p, sizes.head_dim), float("nan"), dtype=sizes.dtype)
    v_pages = k_pages.clone()
    page_table = torch.full((len(chats), table_len), -1, dtype=torch.int32)
    page_pos = torch.full((len(chats), table_len), -1, dtype=torch.int64)
    keys, values = [], []
    for session, chat in enumerate(chats):
        page_table[session, : quota[session]] = torch.tensor([order.pop() for _ in range(quota[session])])
        keys.append(random(max(chat.position + 1, 0), sizes.kv_heads, sizes.head_dim))
        values.append(random(max(chat.position + 1, 0), sizes.kv_heads, sizes.head_dim))
        for t in range(chat.position + 1):
            in_sinks = t < chat.sinks
            since = t if in_sinks else t - chat.sinks
            entry = since // p if in_sinks else -(-chat.sinks // p) + since // p % chat.ring_pages
            page_pos[session, entry] = t - since % p
            if in_sinks or t >= start_of(chat, p):
                k_pages[:, page_table[session, entry], since % p] = keys[-1][t]
                v_pages[:, page_table[session, entry], since % p] = values[-1][t]
    heads = (len(chats), sizes.q_heads, sizes.head_dim)
    return World(
        random(*heads), random(*heads), k_pages, v_pages, page_table, page_pos,
        torch.tensor([chat.sinks for chat in chats]),
        torch.tensor([start_of(chat, p) for chat in chats]),
        torch.tensor([chat.position for chat in chats]),
        tuple(keys), tuple(values),
    )  # fmt: skip


def _hide_sinks(world: World, first: list[int]) -> Tensor:
    """NaN into the sinks before `first` of each session; returns the argument that says so."""
    page_size = world.k_pages.shape[2]
    for session, end in enumerate(first):
        for t in range(end):
            world.k_pages[:, world.page_table[session, t // page_size], t % page_size] = float("nan")
            world.v_pages[:, world.page_table[session, t // page_size], t % page_size] = float("nan")
    return torch.tensor(first)


def _dense(world: World, scale: float, sink_start: Tensor | None = None, cap: float | None = None) -> Tensor:
    """Attention one head and one key at a time, from the whole history, in float32; knows nothing of pages."""
    sessions, q_heads, head_dim = world.q_window.shape
    group = q_heads // world.k_pages.shape[0]
    out = torch.zeros(sessions, q_heads, head_dim)
    for session in range(sessions):
        sinks, start, t = (int(x[session]) for x in (world.sink_tokens, world.start, world.position))
        first = 0 if sink_start is None else int(sink_start[session])
        visible = [j for j in range(t + 1) if first <= j < sinks or j >= start]
        for head in range(q_heads if visible else 0):
            scores = torch.empty(len(visible))
            for n, j in enumerate(visible):
                q = world.q_sink if j < sinks else world.q_window
                key = world.keys[session][j, head // group].float()
                scores[n] = torch.dot(q[session, head].float(), key) * scale
            scores = scores if cap is None else cap * torch.tanh(scores / cap)
            weights = (scores - scores.max()).exp()
            weights = weights / weights.sum()
            for weight, j in zip(weights, visible, strict=True):
                out[session, head] += weight * world.values[session][j, head // group].float()
    return out


@pytest.fixture(scope="session")
def build() -> Callable[..., World]:
    return _build


@pytest.fixture(scope="session")
def hide_sinks() -> Callable[[World, list[int]], Tensor]:
    return _hide_sinks


@pytest.fixture(scope="session")
def dense() -> Callable[[World, float], Tensor]:
    return _dense


@pytest.fixture(scope="session")
def chat() -> type[Chat]:
    return Chat


@pytest.fixture(scope="session")
def sizes() -> type[Sizes]:
    return Sizes


@pytest.fixture(scope="session")
def positions_at_edges() -> Callable[[int, int, int], list[int]]:
    return edges
