"""Drawing the next token. The random numbers depend on the seed and the position only, so a replay draws the same."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.types import EngineError, Position


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """`temperature` 0 is greedy; `top_k` 0 and `top_p` 1 switch those filters off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise EngineError(f"temperature is {self.temperature}; it must lie between 0 and 10")
        if self.top_k < 0:
            raise EngineError(f"top_k is {self.top_k}; it must be 0 (off) or more")
        if not 0 < self.top_p <= 1:
            raise EngineError(f"top_p is {self.top_p}; it must be above 0 and at most 1 (off)")
        if self.max_tokens < 1:
            raise EngineError(f"max_tokens is {self.max_tokens}; it must be at least 1")


def filtered(logits: Tensor, params: SamplingParams) -> Tensor:
    """Probabilities `[vocab]` after temperature, top-k, top-p (nucleus sampling, arXiv 1904.09751), in that order."""
    # The highest score becomes 0 first: divided by a tiny temperature the others then go to -inf, and it stays.
    scores = (logits.double() - logits.max()) / params.temperature
    if 0 < params.top_k < len(scores):
        kth = torch.topk(scores, params.top_k).values[-1]
        scores = scores.masked_fill(scores < kth, float("-inf"))
    probabilities = torch.softmax(scores, dim=-1)
    if params.top_p < 1:
        ordered, order = probabilities.sort(descending=True, stable=True)
        # A token stays while the mass before it is below top_p, so at least one always stays; of equals the first.
        dropped = ordered.cumsum(-1) - ordered >= params.top_p
        probabilities[order[dropped]] = 0
        probabilities /= probabilities.sum()
    return probabilities


def sample(logits: Tensor, params: SamplingParams, position: Position) -> int:
    """Draw the token for `position` from `logits` `[vocab]`: argmax of p / Exp(1), which is a draw from p."""
    if params.temperature == 0:
        return int(logits.argmax())
    probabilities = filtered(logits, params)
    generator = torch.Generator()
    generator.manual_seed((params.seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9) % (1 << 63))
    noise = torch.empty_like(probabilities, device="cpu").exponential_(generator=generator)
    return int((probabilities.cpu() / noise).argmax())
