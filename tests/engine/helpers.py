"""Driving sessions by hand, and poisoning whatever must not be read."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from engine.cache.pool import Pool
from engine.model.load import LoadedModel
from engine.runner import Computed, EagerRunner
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, Position, SessionId
from engine.window import WindowShape


def make_pool(model: LoadedModel, pages: int, page_size: int) -> Pool:
    c = model.config
    pool = Pool(
        layers=c.layers,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        pages=pages,
        page_size=page_size,
        dtype=model.dtype,
        device=model.device,
    )
    pool.k.fill_(float("nan"))
    pool.v.fill_(float("nan"))
    return pool


def poison(pool: Pool, sessions: list[Session]) -> None:
    """NaN into every slot that no session's last token saw: free pages, stale slots, evicted messages."""
    keep = torch.zeros(pool.pages * pool.page_size, dtype=torch.bool)
    for s in sessions:
        visible = [*range(min(s.position, s.shape.sinks)), *range(s.start, s.position)]
        keep[[s.slot(Position(t)) for t in visible]] = True
    gone = ~keep.view(pool.pages, pool.page_size)
    pool.k[:, :, gone] = float("nan")
    pool.v[:, :, gone] = float("nan")


def split_messages(tokens: list[int], sinks: int, seed: int) -> tuple[list[int], list[tuple[str, list[int]]]]:
    """Cut a history into the sinks and messages of random length; returns message starts and the messages."""
    rng, at = random.Random(seed), sinks
    starts, messages = [], []
    while at < len(tokens):
        length = rng.choice([1, 2, 3, 5, 8, 13, 30, 60])
        starts.append(at)
        messages.append((f"m{len(messages)}", tokens[at : at + length]))
        at += length
    return starts, messages


def make_session(
    pool: Pool, shape: WindowShape, tokens: list[int], messages: list[tuple[str, list[int]]], number: int = 1
) -> Session:
    """A session on scattered pages whose whole history is pending."""
    pages = pool.take(shape.quota_pages)
    random.Random(number).shuffle(pages)
    session = Session(SessionId(number), shape, pages)
    session.append(None, tokens[: shape.sinks])
    for key, ids in messages:
        session.append(MessageKey(key), ids)
    return session


def run_all(runner: EagerRunner, pool: Pool, sessions: list[Session], chunk: int) -> dict[int, dict[int, Tensor]]:
    """Compute everything pending, poisoning after each step; returns session -> position -> logits."""
    out: dict[int, dict[int, Tensor]] = {s.id: {} for s in sessions}
    while any(s.pending for s in sessions):
        computed: list[Computed] = runner.run(schedule(sessions, chunk))
        for c in computed:
            out[c.session.id][c.session.position - 1] = c.logits
        poison(pool, sessions)
    return out


def one_sentence(error: Exception) -> str:
    """The message, after checking that it can be shown to a person as it is."""
    text = str(error)
    assert 20 < len(text) < 400, text
    assert "\n" not in text, text
    assert "Traceback" not in text, text
    return text
