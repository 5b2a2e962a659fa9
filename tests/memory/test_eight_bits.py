from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from memory.eight_bits import EightBitLinear, in_eight_bits
from memory.embed import Embedder

TEXTS = [
    "The keeper of the lighthouse has room for seven guests.",
    "How many people can sleep at the lighthouse?",
    "The annual report lists a profit of 4.2 million.",
    "灯塔看守人可以接待七位客人。",
    "x = [row for row in table if row.price > 10]",
]


@pytest.fixture
def plain(embedder_folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(embedder_folder), device="cpu", local_files_only=True)


def test_the_vectors_agree_with_float32(embedder: Embedder, plain: SentenceTransformer) -> None:
    ours = np.concatenate(list(embedder.passages(TEXTS)))
    theirs = plain.encode(TEXTS, normalize_embeddings=True)
    assert embedder.in_eight_bits
    assert np.sum(ours * theirs, axis=1).min() > 0.985
    assert np.abs(ours @ ours.T - theirs @ theirs.T).max() < 0.03


def test_a_layer_with_outlying_channels_keeps_every_token() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(384, 256)
    x = torch.randn(2, 30, 384) * torch.logspace(-3, 1, 30)[None, :, None]  # tokens of very different size
    x[..., 7] *= 20
    wanted = linear(x)
    error = (EightBitLinear(linear)(x) - wanted).norm(dim=-1) / (wanted - linear.bias).norm(dim=-1)
    assert error.max() < 0.1


def test_zeros_and_a_layer_without_bias() -> None:
    linear = nn.Linear(64, 64, bias=False)
    assert torch.equal(EightBitLinear(linear)(torch.zeros(3, 64)), torch.zeros(3, 64))


def test_a_model_that_would_change_stays_as_it_was(plain: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = plain.encode(TEXTS)
    monkeypatch.setattr("memory.eight_bits.LEAST_COSINE", 0.99999)
    assert not in_eight_bits(plain)
    assert not any(isinstance(module, EightBitLinear) for module in plain.modules())
    assert np.array_equal(plain.encode(TEXTS), before)


def test_a_processor_without_the_kernels_keeps_float32(
    plain: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_kernel(linear: nn.Linear) -> nn.Module:
        raise RuntimeError("Didn't find engine for operation quantized::linear_prepack")

    monkeypatch.setattr("memory.eight_bits.EightBitLinear", no_kernel)
    assert not in_eight_bits(plain)
    assert plain.encode(TEXTS).shape == (5, 384)
