from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.model.config import RopeConfig, RopeKind, rope_kind
from engine.model.rope import Rope, attention_factor, inverse_frequencies, rotate
from engine.types import Position, UnsupportedModelError
from tests.engine.helpers import one_sentence
from tests.engine.tiny import CPU

KINDS = [
    (RopeConfig(), {"rope_type": "default", "rope_theta": 10000.0}),
    (RopeConfig(1e6, RopeKind.LINEAR, 4.0), {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0}),
    (
        RopeConfig(5e5, RopeKind.LLAMA3, 8.0, 1.0, 4.0, 8192),
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        RopeConfig(1e6, RopeKind.YARN, 4.0, original_context=32768),
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    (
        RopeConfig(
            1e4,
            RopeKind.YARN,
            8.0,
            original_context=4096,
            beta_fast=16.0,
            beta_slow=2.0,
            truncate=False,
            attention_factor=1.3,
        ),
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 16,
            "beta_slow": 2,
            "truncate": False,
            "attention_factor": 1.3,
        },
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), KINDS)
def test_frequencies_are_those_of_transformers(ours: RopeConfig, theirs: dict[str, object]) -> None:
    config = LlamaConfig(hidden_size=256, num_attention_heads=2, rope_parameters=theirs)
    want = LlamaRotaryEmbedding(config)
    torch.testing.assert_close(inverse_frequencies(ours, 128), want.inv_freq.double(), rtol=1e-6, atol=0)
    assert attention_factor(ours) == pytest.approx(want.attention_scaling)


def test_only_the_first_dimensions_of_a_head_may_be_rotated() -> None:
    rope = Rope(RopeConfig(dims=48), 64, CPU)
    x = torch.randn(3, 2, 64)
    turned = rotate(x, rope.rotation([Position(0), Position(7), Position(10**6)]))
    assert turned[..., 48:].equal(x[..., 48:])
    whole = Rope(RopeConfig(), 48, CPU).rotation([Position(0), Position(7), Position(10**6)])
    assert turned[..., :48].equal(rotate(x[..., :48], whole))


@pytest.mark.parametrize("kind", [ours for ours, _ in KINDS], ids=lambda rope: rope.kind)
@pytest.mark.parametrize("far", [0, 10**5, 10**7, 2**31 + 1])
def test_a_score_depends_on_the_distance_and_on_nothing_else(kind: RopeConfig, far: int) -> None:
    torch.manual_seed(0)
    rope, distance = Rope(kind, 128, CPU), 37
    q, k = torch.randn(1, 4, 128), torch.randn(1, 4, 128)

    def score(t: int) -> torch.Tensor:
        turned_q = rotate(q, rope.rotation([Position(t + distance)]))
        turned_k = rotate(k, rope.rotation([Position(t)]))
        return (turned_q * turned_k).sum(-1) / 128**0.5

    torch.testing.assert_close(score(far), score(0), atol=2e-5, rtol=0)


def test_an_unknown_kind_names_itself() -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        rope_kind("longrope", "model.gguf")
    text = one_sentence(refused.value)
    assert "longrope" in text
    assert all(kind in text for kind in RopeKind)
