"""Settings of draws and edits of logits, as tensors."""

from __future__ import annotations

import math

import torch

from kernels.noise import noise_key
from kernels.sample import Draws, Edits

# temperature, top-k, top-p, min-p
SETTINGS = [
    (0.0, 0, 1.0, 0.0), (0.7, 40, 0.95, 0.0), (1.0, 0, 1.0, 0.0), (1.3, 0, 0.8, 0.0), (1.0, 5, 1.0, 0.0),
    (1.0, 0, 1.0, 0.1), (0.9, 7, 0.5, 0.05), (2.0, 1, 0.9, 0.0), (0.01, 30, 0.999, 0.0), (1.0, 3, 1e-6, 0.0),
]  # fmt: skip


def draws_of(settings: list[tuple[float, int, float, float]], seed: int, first: int = 0) -> Draws:
    """One row for each of `settings`, at positions from `first` on."""
    temperature, top_k, top_p, min_p = zip(*settings, strict=True)
    logs = [math.log(p) if p else -math.inf for p in min_p]
    keys = [noise_key(seed, first + row) for row in range(len(settings))]
    return Draws(
        torch.tensor(temperature), torch.tensor(top_p), torch.tensor(logs), torch.tensor(top_k), torch.tensor(keys)
    )


def edits_of(rows: int, vocab: int, most: int, seed: int) -> Edits:
    """Random edits of up to `most` tokens a row, each once; some are masked out."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(vocab, generator=generator)[:most] for _ in range(rows)])
    ids[torch.rand(ids.shape, generator=generator) < 0.2] = -1
    bias = torch.randn(ids.shape, generator=generator) * (torch.rand(ids.shape, generator=generator) < 0.5)
    times = torch.randint(-1, 4, ids.shape, generator=generator).float()
    of_row = torch.rand(3, rows, generator=generator)
    return Edits(ids, bias, times, 0.8 + of_row[0], of_row[1], of_row[2] - 0.3)


def logits_of(rows: int, vocab: int, seed: int, *, coarse: bool = False) -> torch.Tensor:
    """Random logits; `coarse` ones are rounded so that many are equal."""
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3
    return (logits * 2).round() / 2 if coarse else logits
