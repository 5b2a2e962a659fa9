"""Packed pages inside the engine's loop: against the dense reference that packs the same pages, and against itself."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat, page_format
from engine.cache.formats.rows import Rows, dequantise
from engine.cache.kv_cache import KvCache, kept_pages
from engine.cache.packed import SINK_TOKENS, PackedPages, pages_for
from engine.model.load import LoadedModel, load_model
from engine.runner import EagerRunner
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, PageId, Position, SessionId
from engine.window import WindowShape, full_pages, page_bounds, table_entry
from tests.engine.family_models import FAMILIES, make_model, write_model
from tests.engine.helpers import poison, split_messages
from tests.engine.reference import Packing, reference_logits
from tests.engine.tiny import CPU, Tiny

PACKED = [KvFormat.INT8, KvFormat.K8V4, KvFormat.INT4, KvFormat.TQ3]
SHAPES = [(4, 3, 6), (8, 8, 4), (16, 11, 2), (5, 0, 7), (1, 2, 24), (4, 21, 5)]


class World:
    """A cache, a runner and sessions whose steps are the engine's own, everything unseen poisoned after each."""

    def __init__(self, model: LoadedModel, name: KvFormat, page: int, quota_pages: int, sessions: int = 1) -> None:
        self.pages = pages_for(
            name,
            model.config,
            sessions=sessions,
            quota_pages=quota_pages,
            page_size=page,
            dtype=model.dtype,
            device=CPU,
        )
        self.cache = KvCache(f"tiny|{name}", self.pages, sessions=sessions, quota_pages=quota_pages, host_images=0)
        self.runner = EagerRunner(model.decoder, self.pages, CPU)
        self.sessions: list[Session] = []
        self.held: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def add(self, shape: WindowShape, tokens: list[int], messages: list[tuple[str, list[int]]]) -> Session:
        session = Session(SessionId(len(self.sessions) + 1), shape)
        session.append(None, tokens[: shape.sinks])
        for key, ids in messages:
            session.append(MessageKey(key), ids)
        self.cache.admit(session)
        self.sessions.append(session)
        self.held[session.id] = []
        return session

    def step(self, chunk: int) -> dict[int, tuple[Position, Tensor]]:
        """One step; session -> its last computed position and the logits there."""
        planned = schedule(self.sessions, chunk)
        for session in planned.decode:
            self.cache.claim(session, 1)
        if planned.prefill is not None:
            self.cache.claim(planned.prefill.session, planned.prefill.count)
        out = {}
        for computed in self.runner.run(planned):
            known = len(self.held[computed.session.id])
            self.cache.settle(computed.session)
            if isinstance(self.pages, PackedPages):
                self.read_full_pages(self.pages, computed.session, known)
            out[computed.session.id] = (Position(computed.session.position - 1), computed.logits)
        poison(self.pages, self.sessions, self.cache.prefix.resident)
        self.cache.check(self.sessions)
        return out

    def read_full_pages(self, pages: PackedPages, session: Session, known: int) -> None:
        """Keep what the pages that became full hold, `[layers, kv_heads, tokens, head_dim]`."""
        for number in range(known, full_pages(session.shape, session.position)):
            first, end = page_bounds(session.shape, number)
            low = session.slot(first)
            parts = []
            for rows in (pages.keys, pages.values):
                codes, scales = (m[:, :, low : low + end - first] for m in (rows.codes, rows.scales))
                out = pages.k.new_empty((*scales.shape, pages.k.shape[-1]))
                dequantise(rows.quantiser, Rows(codes, scales), out)
                parts.append(out if number >= kept_pages(pages, session.shape) else out.fill_(float("nan")))
            self.held[session.id].append((parts[0], parts[1]))

    def held_rows(self, session: Session, count: int) -> tuple[Tensor, Tensor]:
        """What packed pages held of the first `count` tokens, `[layers, tokens, kv_heads, head_dim]`, NaN elsewhere."""
        keys, values = (torch.cat(parts, dim=2).transpose(1, 2) for parts in zip(*self.held[session.id], strict=True))
        missing = keys.new_full((keys.shape[0], count - keys.shape[1], *keys.shape[2:]), float("nan"))
        return torch.cat((keys, missing), dim=1), torch.cat((values, missing), dim=1)

    def run_one(
        self, shape: WindowShape, tokens: list[int], messages: list[tuple[str, list[int]]], chunk: int
    ) -> dict[int, Tensor]:
        """One session's logits by position."""
        session = self.add(shape, tokens, messages)
        return self.run(chunk)[session.id]

    def run(self, chunk: int) -> dict[int, dict[int, Tensor]]:
        """Everything pending; session -> position -> logits."""
        logits: dict[int, dict[int, Tensor]] = {s.id: {} for s in self.sessions}
        while any(s.pending for s in self.sessions):
            for session, (t, some) in self.step(chunk).items():
                logits[session][t] = some
        return logits


def packed_pages(world: World) -> PackedPages:
    assert isinstance(world.pages, PackedPages)
    return world.pages


def history(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(length)]


@pytest.fixture
def few_kept_sinks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a system prompt, only the first 8 tokens are kept as computed."""
    monkeypatch.setattr("engine.cache.packed.SINK_TOKENS", 8)
    return 8


def some_of(*cases: tuple[KvFormat, int, int, int, int]) -> list[Any]:
    """Every format, shape and chunk: those in `cases` always, the others in the slow tests."""
    all_cases = itertools.product(PACKED, SHAPES, (1, 3, 16, 500))
    flat = [(name, *shape, chunk) for name, shape, chunk in all_cases]
    return [case if case in cases else pytest.param(*case, marks=pytest.mark.slow) for case in flat]


@pytest.mark.parametrize(
    ("name", "page", "sinks", "ring", "chunk"),
    some_of(
        (KvFormat.INT8, 4, 3, 6, 1),
        (KvFormat.INT8, 5, 0, 7, 3),
        (KvFormat.K8V4, 8, 8, 4, 16),
        (KvFormat.K8V4, 1, 2, 24, 16),
        (KvFormat.INT4, 4, 21, 5, 3),
        (KvFormat.INT4, 4, 21, 5, 500),
        (KvFormat.TQ3, 4, 21, 5, 1),
        (KvFormat.TQ3, 8, 8, 4, 500),
    ),
)
def test_logits_at_every_position(
    tiny: Tiny, name: KvFormat, page: int, sinks: int, ring: int, chunk: int, few_kept_sinks: int
) -> None:
    shape = WindowShape(page, sinks, ring)
    tokens = history(sinks + 3 * ring * page + 3, seed=page)
    starts, messages = split_messages(tokens, sinks, seed=ring)
    world = World(tiny.ours, name, page, shape.quota_pages + 1)
    session = world.add(shape, tokens, messages)
    got = world.run(chunk)[session.id]
    chosen = page_format(name, tiny.ours.config.head_dim)
    assert chosen is not None
    packing = Packing(chosen, -(-few_kept_sinks // page), world.held_rows(session, len(tokens)))
    want = reference_logits(
        tiny.theirs, tokens, sinks=sinks, page=page, ring=ring, message_starts=starts, packing=packing
    )
    assert len(tokens) - 1 in got
    for t, logits in got.items():
        torch.testing.assert_close(logits, want[t], atol=2e-4, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")


@pytest.mark.parametrize("name", PACKED)
def test_sessions_in_one_batch_do_not_touch_each_other(tiny: Tiny, name: KvFormat, few_kept_sinks: int) -> None:
    shapes = [WindowShape(4, 3, 6), WindowShape(4, 14, 3), WindowShape(4, 1, 6)]
    world = World(tiny.ours, name, 4, 7, sessions=3)
    alone = []
    for number, shape in enumerate(shapes):
        tokens = history(50 + 17 * number, seed=number)
        _, messages = split_messages(tokens, shape.sinks, seed=number)
        world.add(shape, tokens, messages)
        one = World(tiny.ours, name, 4, 7)
        one.add(shape, tokens, messages)
        alone.append(one.run(6)[1])
    together = world.run(6)
    for want, session in zip(alone, world.sessions, strict=True):
        for t, logits in together[session.id].items():
            torch.testing.assert_close(logits, want[t], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", PACKED)
def test_a_page_is_packed_once_and_stays_as_it_is(tiny: Tiny, name: KvFormat) -> None:
    """Over a hundred evictions, no byte of a page changes between becoming full and being recycled."""
    shape = WindowShape(4, 3, 5)
    tokens = history(3 + 110 * 4, seed=1)
    world = World(tiny.ours, name, 4, shape.quota_pages)
    session = world.add(shape, tokens, split_messages(tokens, 3, seed=1)[1])
    memory = [m.data_ptr() for m in memory_of(packed_pages(world))]
    packed: dict[int, list[Tensor]] = {}
    evicted = 0
    while session.pending:
        world.step(3)
        for number in range(full_pages(shape, session.position)):
            entry = table_entry(shape, number)
            if number < shape.sink_pages or session.page_pos[entry] != page_bounds(shape, number)[0]:
                evicted += packed.pop(number, None) is not None
                continue
            now = image_of(packed_pages(world), session.table[entry])
            for before, after in zip(packed.setdefault(number, now), now, strict=True):
                assert torch.equal(before.view(torch.uint8), after.view(torch.uint8))
    assert evicted > 100
    assert [m.data_ptr() for m in memory_of(packed_pages(world))] == memory


def memory_of(pages: PackedPages) -> list[Tensor]:
    packed = [memory for rows in (pages.keys, pages.values) for memory in (rows.codes, rows.scales)]
    return [*packed, pages.k, pages.v, pages.tile]


def image_of(pages: PackedPages, page: PageId) -> list[Tensor]:
    slots = slice(page * pages.page_size, (page + 1) * pages.page_size)
    return [memory[:, :, slots].clone() for memory in memory_of(pages)[:4]]


@pytest.mark.parametrize("name", PACKED)
def test_bytes_are_the_planned_ones(tiny: Tiny, name: KvFormat) -> None:
    config, page, quota, sessions = tiny.ours.config, 16, 40, 3
    world = World(tiny.ours, name, page, quota, sessions)
    kept = SINK_TOKENS // page
    frames = sessions * (kept + 1) + 1
    tile = config.kv_heads * 256 * config.head_dim * 4
    planned = page * (
        sessions * quota * config.kv_bytes_per_token(name, bytes_per_value=4)
        + frames * config.kv_bytes_per_token(KvFormat.AUTO, bytes_per_value=4)
    )
    assert world.pages.bytes == sum(memory.nbytes for memory in memory_of(packed_pages(world))) == planned + tile
    assert world.pages.page_bytes == page * config.kv_bytes_per_token(name, bytes_per_value=4)


@pytest.mark.parametrize("name", PACKED)
def test_a_page_comes_back_from_its_image_to_the_bit(tiny: Tiny, name: KvFormat) -> None:
    pages = packed_pages(World(tiny.ours, name, 4, 10))
    for memory in memory_of(pages)[:4]:
        memory.view(torch.uint8).random_(generator=torch.Generator().manual_seed(1))
    pages.begin(PageId(3))
    slot = pages.frame_slot(3 * 4)
    pages.layer(0)[0][:, slot : slot + 4] = torch.arange(8.0)
    for page in (PageId(2), PageId(3)):
        images = pages.images(pages.image_parts(page))
        before = [memory.clone() for memory in pages._memory(page)]
        pages.save(page, list(images))
        for memory in pages._memory(page):
            memory.fill_(0)
        pages.restore(list(images), page)
        for memory, want in zip(pages._memory(page), before, strict=True):
            assert torch.equal(memory.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8))
    assert pages.image_parts(PageId(2)) == 1 < pages.image_parts(PageId(3))


@pytest.mark.parametrize("chunk", [5, 32])
@pytest.mark.parametrize(("family", "name"), [("gemma3_text", KvFormat.INT8), ("mistral", KvFormat.TQ3)])
def test_native_windows(tmp_path: Path, family: str, name: KvFormat, chunk: int) -> None:
    """Layers with a window of their own read packed pages too, past it and past the quota (ik_llama #1205)."""
    changes = next(changes for known, changes in FAMILIES if known == family and changes.get("sliding_window"))
    theirs = make_model(family, **changes)
    write_model(tmp_path, theirs)
    model = load_model(tmp_path, device=CPU, dtype=torch.float32)
    assert model.config.windows != (None,)
    shape, tokens = WindowShape(4, 6, 12), history(6 + 2 * 48 + 5, seed=4)
    starts, messages = split_messages(tokens, 6, seed=4)
    world = World(model, name, 4, shape.quota_pages)
    got = world.run_one(shape, tokens, messages, chunk)
    chosen = page_format(name, model.config.head_dim)
    assert chosen is not None
    packing = Packing(chosen, world.pages.kept_pages, world.held_rows(world.sessions[0], len(tokens)))
    want = reference_logits(theirs, tokens, sinks=6, page=4, ring=12, message_starts=starts, packing=packing)
    for t, logits in got.items():
        torch.testing.assert_close(logits, want[t], atol=5e-4, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")


@pytest.mark.parametrize("name", PACKED)
def test_a_model_in_bfloat16(tiny: Tiny, name: KvFormat) -> None:
    """What a GPU runs in: decode and chunks agree as far as eight bits of precision allow."""
    model = load_model(tiny.folder, device=CPU, dtype=torch.bfloat16)
    shape, tokens = WindowShape(4, 3, 6), history(60, seed=9)
    messages = split_messages(tokens, 3, seed=9)[1]
    by_token, by_chunk = (
        World(model, name, 4, shape.quota_pages).run_one(shape, tokens, messages, chunk)[59] for chunk in (1, 16)
    )
    assert by_token.isfinite().all()
    assert float(torch.cosine_similarity(by_token, by_chunk, dim=0)) > 0.99
