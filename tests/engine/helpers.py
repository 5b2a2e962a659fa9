"""Driving sessions by hand, and poisoning whatever must not be read."""

from __future__ import annotations

import random
from collections.abc import Iterable

import torch
from torch import Tensor

from engine.cache.packed import PackedPages
from engine.cache.pages import Pages
from engine.look import visible_positions
from engine.model.load import LoadedModel
from engine.runner import Computed, EagerRunner
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, PageId, Position, SessionId
from engine.window import WindowShape


def make_pages(model: LoadedModel, count: int, page_size: int, dtype: torch.dtype | None = None) -> Pages:
    """Pages full of NaN, of the type that the model runs in or another."""
    c = model.config
    pages = Pages(
        layers=c.layers,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        pages=count,
        page_size=page_size,
        dtype=dtype or model.dtype,
        device=model.device,
    )
    pages.k.fill_(float("nan"))
    pages.v.fill_(float("nan"))
    return pages


def poison(pages: Pages, sessions: list[Session], known: Iterable[PageId] = ()) -> None:
    """NaN into every slot that no session's last token saw and that is in no `known` page: free pages, stale slots,
    evicted messages."""
    if isinstance(pages, PackedPages):
        poison_packed(pages, sessions, known)
        return
    gone = ~seen_slots(pages, sessions, known)
    pages.k[:, :, gone] = float("nan")
    pages.v[:, :, gone] = float("nan")


def seen_slots(pages: Pages, sessions: list[Session], known: Iterable[PageId]) -> Tensor:
    """`[pages, page_size]`, True for slots that a last token saw or that are in a known page."""
    keep = torch.zeros(pages.count * pages.page_size, dtype=torch.bool)
    keep.view(pages.count, pages.page_size)[list(known)] = True
    for s in sessions:
        keep[[s.slot(t) for t in visible_positions(s)]] = True
    return keep.view(pages.count, pages.page_size)


def poison_packed(pages: PackedPages, sessions: list[Session], known: Iterable[PageId]) -> None:
    """The same where a page lies either in its frame or in its packed place: the other place is poisoned too."""
    keep, framed = seen_slots(pages, sessions, known), sorted(pages.framed)
    frames = torch.zeros(pages.k.shape[2], pages.page_size, dtype=torch.bool)
    for page in framed:
        frames[pages.frame_slot(page * pages.page_size) // pages.page_size] = keep[page]
    pages.k[:, :, ~frames] = float("nan")
    pages.v[:, :, ~frames] = float("nan")
    keep[framed] = False
    for rows in (pages.keys, pages.values):
        rows.scales[:, :, ~keep.flatten()] = float("nan")
    pages.tile.fill_(float("nan"))


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
    pages: Pages,
    shape: WindowShape,
    tokens: list[int],
    messages: list[tuple[str, list[int]]],
    number: int = 1,
    first_page: int = 0,
) -> Session:
    """A session on scattered pages, from `first_page` on, whose whole history is pending."""
    table = [PageId(first_page + index) for index in range(shape.quota_pages)]
    assert table[-1] < pages.count
    random.Random(number).shuffle(table)
    session = Session(SessionId(number), shape, table)
    session.append(None, tokens[: shape.sinks])
    for key, ids in messages:
        session.append(MessageKey(key), ids)
    return session


def run_all(runner: EagerRunner, pages: Pages, sessions: list[Session], chunk: int) -> dict[int, dict[int, Tensor]]:
    """Compute everything pending, poisoning after each step; returns session -> position -> logits."""
    out: dict[int, dict[int, Tensor]] = {s.id: {} for s in sessions}
    while any(s.pending for s in sessions):
        computed: list[Computed] = runner.run(schedule(sessions, chunk))
        for c in computed:
            out[c.session.id][c.session.position - 1] = c.logits
        poison(pages, sessions)
    return out


def run_and_read(
    runner: EagerRunner, pages: Pages, session: Session, chunk: int
) -> tuple[dict[int, Tensor], tuple[Tensor, Tensor]]:
    """One session's logits by position, and the keys and values that its pages held, `[layers, tokens, heads, dim]`."""
    logits: dict[int, Tensor] = {}
    held: list[Tensor] = []
    while session.pending:
        first = session.position
        (computed,) = runner.run(schedule([session], chunk))
        logits[session.position - 1] = computed.logits
        slots = [session.slot(Position(t)) for t in range(first, session.position)]
        held.append(torch.stack([memory.flatten(2, 3)[:, :, slots] for memory in (pages.k, pages.v)]).float())
        poison(pages, [session])
    keys, values = torch.cat(held, dim=3).transpose(2, 3)
    return logits, (keys, values)


def one_sentence(error: Exception) -> str:
    """The message, after checking that it can be shown to a person as it is."""
    text = str(error)
    assert 20 < len(text) < 400, text
    assert "\n" not in text, text
    assert "Traceback" not in text, text
    return text
