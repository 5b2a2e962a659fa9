"""Decoding over packed pages by the kernel, against the dense reference. Run by test_by_kernel.py."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat, page_format
from engine.window import WindowShape
from tests.engine.helpers import split_messages
from tests.engine.reference import Packing, reference_logits
from tests.engine.test_packed import PACKED, World, few_kept_sinks, history
from tests.engine.tiny import Tiny

__all__ = ["few_kept_sinks"]
PAGE = 16


@pytest.mark.parametrize(
    ("name", "before", "sessions"),
    [
        (KvFormat.TQ3, 99, 1),
        (KvFormat.K8V4, 19, 1),
        *(pytest.param(name, 131, 2, marks=pytest.mark.slow) for name in PACKED),
        pytest.param(KvFormat.INT8, 19, 2, marks=pytest.mark.slow),
        pytest.param(KvFormat.INT4, 67, 2, marks=pytest.mark.slow),
    ],
)
def test_packed_pages_equal_the_reference(
    tiny: Tiny, name: KvFormat, before: int, sessions: int, few_kept_sinks: int
) -> None:
    """Decoding over the end of a page, after a prompt of `before` tokens: of the sinks, whose second page is packed, or
    of the ring, unwrapped and windows later."""
    shapes, count = [WindowShape(PAGE, 21, 3), WindowShape(PAGE, 5, 3)][:sessions], 3
    world = World(tiny.ours, name, PAGE, 5, sessions)
    wants, lasts = [], []
    for number, shape in enumerate(shapes):
        tokens = history(before + count, seed=number)
        starts, messages = split_messages(tokens, shape.sinks, seed=number)
        session = world.add(shape, tokens, messages)
        wants.append(partial(reference_logits, tiny.theirs, tokens, page=PAGE, ring=3, message_starts=starts))
        lasts.append(session.pending[before:])
        del session.pending[before:]
    world.run(40)
    got: list[dict[int, Tensor]] = []
    for step in range(count):
        for session, last in zip(world.sessions, lasts, strict=True):
            session.pending.append(last[step])
        got.append({number: logits for number, (_, logits) in world.step(40).items()})
    chosen = page_format(name, tiny.ours.config.head_dim)
    assert chosen is not None
    for shape, session, want in zip(shapes, world.sessions, wants, strict=True):
        packing = Packing(chosen, -(-few_kept_sinks // PAGE), world.held_rows(session, before + count))
        wanted = want(sinks=shape.sinks, packing=packing)
        for step, logits in enumerate(got):
            torch.testing.assert_close(logits[session.id], wanted[before + step], atol=2e-4, rtol=1e-4)
