"""The engine against the dense float32 reference, from the first token to four windows later."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from transformers import LlamaForCausalLM

from engine.runner import EagerRunner
from engine.window import WindowShape
from tests.engine.helpers import make_pages, make_session, run_all, split_messages
from tests.engine.reference import reference_logits
from tests.engine.tiny import CPU, Tiny

TOLERANCE = 2e-4


def history(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(length)]


@cache
def history_and_reference(
    theirs: LlamaForCausalLM, page: int, sinks: int, ring: int
) -> tuple[list[int], list[tuple[str, list[int]]], torch.Tensor]:
    """Tokens up to four windows long, their messages, and the logits at every position: the same for all chunks."""
    tokens = history(sinks + 4 * ring * page + 3, seed=page * 100 + ring)
    starts, messages = split_messages(tokens, sinks, seed=ring)
    want = reference_logits(theirs, tokens, sinks=sinks, page=page, ring=ring, message_starts=starts)
    return tokens, messages, want


@pytest.mark.parametrize("chunk", [1, 3, 16, 500])
@pytest.mark.parametrize(
    ("page", "sinks", "ring"), [(4, 3, 6), (8, 8, 4), (16, 11, 2), (5, 0, 7), (32, 40, 3), (1, 2, 24)]
)
def test_logits_at_every_position(tiny: Tiny, page: int, sinks: int, ring: int, chunk: int) -> None:
    shape = WindowShape(page, sinks, ring)
    tokens, messages, want = history_and_reference(tiny.theirs, page, sinks, ring)
    pages = make_pages(tiny.ours, shape.quota_pages + 3, page)
    session = make_session(pages, shape, tokens, messages)
    got = run_all(EagerRunner(tiny.ours.decoder, pages, CPU), pages, [session], chunk)[session.id]
    assert len(tokens) - 1 in got
    if chunk == 1:
        assert sorted(got) == list(range(len(tokens)))
    for t, logits in got.items():
        torch.testing.assert_close(logits, want[t], atol=TOLERANCE, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")


def test_sessions_in_one_batch_do_not_touch_each_other(tiny: Tiny) -> None:
    shapes = [WindowShape(4, 3, 5), WindowShape(4, 9, 3), WindowShape(4, 1, 8)]
    pages = make_pages(tiny.ours, sum(s.quota_pages for s in shapes), 4)
    sessions, wants = [], []
    for number, shape in enumerate(shapes, start=1):
        first = sum(s.quota_pages for s in shapes[: number - 1])
        tokens = history(60 + 17 * number, seed=number)
        starts, messages = split_messages(tokens, shape.sinks, seed=number)
        wants.append(
            reference_logits(
                tiny.theirs, tokens, sinks=shape.sinks, page=4, ring=shape.ring_pages, message_starts=starts
            )
        )
        sessions.append(make_session(pages, shape, tokens, messages, number, first))
    got = run_all(EagerRunner(tiny.ours.decoder, pages, CPU), pages, sessions, 6)
    for session, want in zip(sessions, wants, strict=True):
        for t, logits in got[session.id].items():
            torch.testing.assert_close(logits, want[t], atol=TOLERANCE, rtol=1e-4)


def test_before_the_first_eviction_it_is_transformers(tiny: Tiny) -> None:
    tokens = history(90, seed=5)
    shape = WindowShape(16, 10, 6)
    pages = make_pages(tiny.ours, shape.quota_pages, 16)
    _, messages = split_messages(tokens, 10, seed=1)
    session = make_session(pages, shape, tokens, messages)
    got = run_all(EagerRunner(tiny.ours.decoder, pages, CPU), pages, [session], 1)[session.id]
    with torch.no_grad():
        want = tiny.theirs(torch.tensor([tokens])).logits[0]
    torch.testing.assert_close(torch.stack([got[t] for t in range(90)]), want, atol=1e-4, rtol=1e-4)
