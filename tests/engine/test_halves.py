"""Pages in float16: against the dense reference whose keys and values are rounded the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from engine.model.load import LoadedModel, load_model
from engine.runner import EagerRunner
from engine.window import WindowShape
from tests.engine.family_models import FAMILIES, make_model, write_model
from tests.engine.helpers import make_pages, make_session, run_and_read, split_messages
from tests.engine.reference import Halved, reference_logits
from tests.engine.test_packed import history
from tests.engine.tiny import CPU, Tiny

SHAPES = [(4, 3, 6), (8, 8, 4), (5, 0, 7), (4, 21, 5)]


def check(
    model: LoadedModel, theirs: PreTrainedModel, shape: WindowShape, tokens: list[int], chunk: int, close: float
) -> None:
    starts, messages = split_messages(tokens, shape.sinks, seed=shape.ring_pages)
    pages = make_pages(model, shape.quota_pages + 1, shape.page_size, torch.float16)
    runner, session = EagerRunner(model.decoder, pages, CPU), make_session(pages, shape, tokens, messages)
    got, held = run_and_read(runner, pages, session, chunk)
    sizes = {"sinks": shape.sinks, "page": shape.page_size, "ring": shape.ring_pages}
    want = reference_logits(theirs, tokens, **sizes, message_starts=starts, packing=Halved(held))
    assert len(tokens) - 1 in got
    for t, logits in got.items():
        torch.testing.assert_close(logits, want[t], atol=close, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")
    exact = reference_logits(theirs, tokens, **sizes, message_starts=starts)
    assert max(float((logits - exact[t]).abs().max()) for t, logits in got.items()) > 2 * close  # it is of account


@pytest.mark.parametrize("chunk", [1, 3, 500])
@pytest.mark.parametrize(("page", "sinks", "ring"), SHAPES)
def test_logits_at_every_position(tiny: Tiny, page: int, sinks: int, ring: int, chunk: int) -> None:
    shape = WindowShape(page, sinks, ring)
    check(tiny.ours, tiny.theirs, shape, history(sinks + 3 * ring * page + 3, seed=page), chunk, 1e-4)


@pytest.mark.parametrize("family", ["gemma2", "mistral"])
def test_native_windows_and_caps(tmp_path: Path, family: str) -> None:
    changes = next(changes for name, changes in FAMILIES if name == family)
    theirs = make_model(family, **(changes | {"sliding_window": 20}))
    write_model(tmp_path, theirs)
    model = load_model(tmp_path, device=CPU, dtype=torch.float32)
    for chunk in (1, 9):
        check(model, theirs, WindowShape(8, 11, 4), history(120, seed=4), chunk, 1e-4)


@pytest.mark.parametrize("chunk", [1, 40])
def test_a_key_too_large_for_float16_is_the_largest(tmp_path: Path, chunk: int) -> None:
    """Qwen2's biases make keys of some hundreds; a model that goes beyond 65,504 still answers in numbers."""
    theirs = make_model("qwen2")
    with torch.no_grad():
        for layer in theirs.model.layers:
            layer.self_attn.k_proj.bias[:3] = 1e5
    write_model(tmp_path, theirs)
    model = load_model(tmp_path, device=CPU, dtype=torch.float32)
    shape, tokens = WindowShape(8, 11, 4), history(60, seed=2)
    pages = make_pages(model, shape.quota_pages, 8, torch.float16)
    _, messages = split_messages(tokens, 11, seed=1)
    runner, session = EagerRunner(model.decoder, pages, CPU), make_session(pages, shape, tokens, messages)
    logits, (keys, _) = run_and_read(runner, pages, session, chunk)
    assert float(keys.abs().max()) == torch.finfo(torch.float16).max
    assert all(some.isfinite().all() for some in logits.values())
