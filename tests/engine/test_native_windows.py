"""Layers with a sliding window of their own, and layers without rotation, inside a session's window: equal to the dense
reference from the first token to several windows later."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.model.load import load_model
from engine.runner import EagerRunner
from engine.types import Position
from engine.window import Sight, WindowShape, sight, sink_phase
from tests.engine.family_models import GEMMA3_ROPES, make_model, write_model
from tests.engine.helpers import make_pages, make_session, run_all, split_messages
from tests.engine.reference import reference_logits, visible
from tests.engine.tiny import CPU, Tiny

PAGE, SINKS, RING = 8, 11, 4
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 20, "num_hidden_layers": 2}
GEMMA2 = GEMMA | {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 5.0}
LOCAL_AND_GLOBAL = {"rope_parameters": GEMMA3_ROPES, "layer_types": ["sliding_attention", "full_attention"]}
# The ring holds 32 tokens, 25 to 32 of them visible; with the sinks the session sees 43 at most.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma 2, soft caps": ("gemma2", GEMMA2 | {"sliding_window": 14}),
    "gemma 3, two rotary bases": ("gemma3_text", GEMMA | LOCAL_AND_GLOBAL | {"sliding_window": 14}),
    "mistral, shorter than the ring": ("mistral", {"sliding_window": 20}),
    "mistral, as long as the ring": ("mistral", {"sliding_window": RING * PAGE}),
    "mistral, into the sinks": ("mistral", {"sliding_window": 36}),
    "mistral, as long as the quota": ("mistral", {"sliding_window": 43}),
    "mistral, longer than the quota": ("mistral", {"sliding_window": 4096}),
    "smollm3, layers that do not rotate": ("smollm3", {"no_rope_layers": [1, 0, 1]}),
}


@cache
def the_model(folder: Path, name: str) -> Tiny:
    family, changes = MODELS[name]
    theirs = make_model(family, **changes)
    write_model(folder, theirs)
    return Tiny(folder, theirs, load_model(folder, device=CPU, dtype=torch.float32))


@cache
def history_and_reference(folder: Path, name: str) -> tuple[list[int], list[tuple[str, list[int]]], torch.Tensor]:
    rng = random.Random(len(name))
    tokens = [rng.randrange(256) for _ in range(SINKS + 4 * RING * PAGE + 3)]
    starts, messages = split_messages(tokens, SINKS, seed=7)
    want = reference_logits(
        the_model(folder, name).theirs, tokens, sinks=SINKS, page=PAGE, ring=RING, message_starts=starts
    )
    return tokens, messages, want


@pytest.mark.parametrize("chunk", [1, 5, 500])
@pytest.mark.parametrize("name", MODELS)
def test_logits_at_every_position(tmp_path_factory: pytest.TempPathFactory, name: str, chunk: int) -> None:
    folder = tmp_path_factory.getbasetemp() / name.replace(" ", "-")
    tiny, shape = the_model(folder, name), WindowShape(PAGE, SINKS, RING)
    tokens, messages, want = history_and_reference(folder, name)
    pages = make_pages(tiny.ours, shape.quota_pages + 2, PAGE)
    session = make_session(pages, shape, tokens, messages)
    got = run_all(EagerRunner(tiny.ours.decoder, pages, CPU), pages, [session], chunk)[session.id]
    assert len(tokens) - 1 in got
    if chunk == 1:
        assert sorted(got) == list(range(len(tokens)))
    for t, logits in got.items():
        torch.testing.assert_close(logits, want[t], atol=2e-4, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_the_reference_is_transformers_while_nothing_is_evicted(family: str) -> None:
    theirs = make_model(family, **MODELS["gemma 2, soft caps" if family == "gemma2" else "mistral, into the sinks"][1])
    tokens = [random.Random(2).randrange(256) for _ in range(80)]
    got = reference_logits(theirs, tokens, sinks=9, page=16, ring=8, message_starts=[9])
    with torch.no_grad():
        torch.testing.assert_close(got, theirs(torch.tensor([tokens])).logits[0], atol=1e-4, rtol=1e-4)


@given(st.data())
def test_what_a_layer_sees_is_its_window_inside_the_cache(data: st.DataObject) -> None:
    page, sinks, ring = data.draw(st.tuples(st.integers(1, 6), st.integers(0, 14), st.integers(2, 5)))
    t, native = data.draw(st.integers(0, 120)), data.draw(st.none() | st.integers(1, 60))
    lengths = data.draw(st.lists(st.integers(1, 12), max_size=20))
    starts = [sinks + sum(lengths[:i]) for i in range(len(lengths) + 1)]
    seen = visible(t, sinks, page, ring, starts)
    start = Position(min((n for n in seen if n >= sinks), default=sinks))
    shape = WindowShape(page, sinks, ring)
    got = sight(shape, Position(t), start, native)
    assert sink_phase(shape, Position(t), start) == len(seen) - 1
    want = seen if native is None else seen[-native:]
    assert [*range(got.sink, min(sinks, t + 1)), *range(got.start, t + 1)] == want


def test_the_example_of_the_docstring() -> None:
    shape = WindowShape(4, 4, 3)
    assert sight(shape, Position(15), Position(8), 10) == Sight(Position(2), Position(8))
    assert sight(shape, Position(15), Position(8), 5) == Sight(Position(4), Position(11))
