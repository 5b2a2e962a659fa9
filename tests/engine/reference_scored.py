"""The judge of the policy that scores pages: heat from whole attention matrices, page by page, in the plainest way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.engine.reference import reference_logits


@dataclass(frozen=True)
class Scored:
    """Logits at every position `[tokens, vocab]`, what each token sees, and by how much of its own heat the page that
    was recycled stood below the next, at the closest choice: two that are equal may fall to either side."""

    logits: Tensor
    see: list[list[int]]
    margin: float


def scored_reference(model: PreTrainedModel, tokens: list[int], *, sinks: int, page: int, ring: int) -> Scored:
    """The whole history again for every page that is recycled."""
    see = [list(range(t + 1)) for t in range(min(sinks, len(tokens)))]
    live: list[int] = []
    margin = 1.0

    def run(count: int) -> tuple[Tensor, Tensor]:
        noted = torch.zeros(count, count)
        shape = {"sinks": sinks, "page": page, "ring": ring, "message_starts": list[int]()}
        return reference_logits(model, tokens[:count], **shape, see=lambda t: see[t], noted=noted), noted

    for number, first in enumerate(range(sinks, len(tokens), page)):
        if len(live) == ring:
            noted = run(first)[1]
            older = live[: ring - ring // 2]
            heat = {n: float(noted[:, sinks + n * page : sinks + (n + 1) * page].sum()) for n in older}
            coldest = sorted(older, key=lambda n: (heat[n], n))
            if len(coldest) > 1:
                margin = min(margin, heat[coldest[1]] / heat[coldest[0]] - 1)
            live.remove(coldest[0])
        live.append(number)
        for t in range(first, min(len(tokens), first + page)):
            ring_tokens = [p for n in live for p in range(sinks + n * page, sinks + (n + 1) * page) if p <= t]
            see.append([*range(sinks), *ring_tokens])
    return Scored(run(len(tokens))[0], see, margin)
