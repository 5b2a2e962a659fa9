"""Heavy hitters: pages that attention used most stay; judged by whole attention matrices in float32."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat
from engine.cache.kv_cache import KvCache
from engine.cache.pages import Pages
from engine.config import EngineConfig
from engine.look import visible_positions
from engine.model.load import load_model
from engine.policy import Policy
from engine.runner import EagerRunner
from engine.scheduler import schedule
from engine.session import EvictedSpan, Session
from engine.types import EngineError, MessageKey, Position, SessionId
from engine.window import WindowShape, page_edge
from tests.engine.family_models import GEMMA3_ROPES, make_model, write_model
from tests.engine.helpers import make_pages, one_sentence, poison
from tests.engine.reference_scored import Scored, scored_reference
from tests.engine.tiny import CPU, Tiny, write_llama

PAGE, SINKS, RING = 4, 7, 6
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
GEMMA3: dict[str, Any] = {
    "head_dim": 16,
    "query_pre_attn_scalar": 20,
    "num_hidden_layers": 2,
    "rope_parameters": GEMMA3_ROPES,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 14,
}


def the_model(folder: Path, name: str) -> Tiny:
    if name == "llama":
        theirs: Any = write_llama(folder)
    elif name == "yarn":
        theirs = write_llama(folder, rope_parameters=YARN, max_position_embeddings=256)
    else:
        theirs = make_model("gemma3_text", **GEMMA3)
        write_model(folder, theirs)
    return Tiny(folder, theirs, load_model(folder, device=CPU, dtype=torch.float32))


def history(length: int) -> list[int]:
    """Words that come again, so that some pages are looked at more than others."""
    rng = random.Random(4)
    words = [[rng.randrange(250) for _ in range(rng.randrange(2, 6))] for _ in range(9)]
    tokens: list[int] = []
    while len(tokens) < length:
        tokens += rng.choice(words)
    return tokens[:length]


class Read:
    """One session read in chunks, NaN in all that its last token did not see."""

    def __init__(self, tiny: Tiny, tokens: list[int], chunk: int, dtype: torch.dtype = torch.float32) -> None:
        shape = WindowShape(PAGE, SINKS, RING)
        self.pages = make_pages(tiny.ours, shape.quota_pages, PAGE, dtype)
        self.cache = KvCache("m", self.pages, sessions=1, quota_pages=shape.quota_pages, host_images=0)
        self.session = Session(SessionId(1), shape, policy=Policy.SCORED)
        self.session.append(None, tokens[:SINKS])
        self.session.append(MessageKey("m"), tokens[SINKS:])
        self.cache.admit(self.session)
        runner = EagerRunner(tiny.ours.decoder, self.pages, CPU)
        self.logits: dict[int, Tensor] = {}
        self.see: dict[int, list[Position]] = {}
        self.evicted: list[EvictedSpan] = []
        while self.session.pending:
            planned = schedule([self.session], chunk)
            self.cache.claim(self.session, planned.tokens)
            for computed in runner.run(planned):
                self.cache.settle(self.session)
                at = self.session.position - 1
                self.logits[at], self.see[at] = computed.logits, visible_positions(self.session)
                self.evicted += [computed.evicted] if computed.evicted else []
            poison(self.pages, [self.session], self.cache.prefix.resident)
            self.cache.check([self.session])


@pytest.fixture(scope="module", params=["llama", "yarn", "gemma 3"])
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, list[int], Scored]:
    tiny, tokens = the_model(tmp_path_factory.mktemp("scored"), request.param), history(SINKS + 4 * RING * PAGE + 2)
    want = scored_reference(tiny.theirs, tokens, sinks=SINKS, page=PAGE, ring=RING)
    assert want.margin > 1e-5
    return tiny, tokens, want


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_logits_at_every_position(judged: tuple[Tiny, list[int], Scored], chunk: int) -> None:
    tiny, tokens, want = judged
    read = Read(tiny, tokens, chunk)
    assert len(read.logits) == len(tokens) or chunk > 1
    for t, logits in read.logits.items():
        assert read.see[t] == want.see[t]
        torch.testing.assert_close(logits, want.logits[t], atol=1e-4, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_pages_in_float16(judged: tuple[Tiny, list[int], Scored], chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pages in float32 that were given the rounded rows: what is looked at, what goes, and the logits."""
    tiny, tokens, exact = judged
    read = Read(tiny, tokens, chunk, torch.float16)
    store = Pages.store

    def rounded(pages: Pages, layer: int, slots: Tensor | int, k: Tensor, v: Tensor) -> None:
        store(pages, layer, slots, k.half().float(), v.half().float())

    monkeypatch.setattr(Pages, "store", rounded)
    want = Read(tiny, tokens, chunk)
    assert (read.see, read.evicted) == (want.see, want.evicted)
    for t, logits in read.logits.items():
        torch.testing.assert_close(logits, want.logits[t], atol=1e-4, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")
    assert any(not torch.allclose(logits, exact.logits[t], atol=1e-4) for t, logits in read.logits.items())


def test_it_is_not_the_oldest_that_goes(judged: tuple[Tiny, list[int], Scored]) -> None:
    """Else the policy would be round-robin by another name; and each page that goes is told once."""
    tiny, tokens, want = judged
    evicted = Read(tiny, tokens, 5).evicted
    kept = next(t for t in want.see[-1] if t >= SINKS)
    assert kept + PAGE <= page_edge(WindowShape(PAGE, SINKS, RING), Position(len(tokens) - 1))
    gone = {t for span in evicted for t in range(span.first, span.last + 1)}
    assert len(gone) == sum(span.last + 1 - span.first for span in evicted)
    assert gone == set(range(len(tokens))) - set(want.see[-1])


def test_packed_pages_are_refused() -> None:
    with pytest.raises(EngineError) as refused:
        EngineConfig(256, policy=Policy.SCORED, kv_format=KvFormat.INT8)
    assert "int8" in one_sentence(refused.value)
