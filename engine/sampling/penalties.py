"""What repeating costs: logit bias, repetition, presence and frequency penalties.

The history is the last N tokens of the chat (`penalty_tokens`), prompt and answers alike, counted back from the token
to be drawn. It is a part of the text and not of the window: evicting pages changes nothing, and a chat that is read
again draws as it did. N should be longer than the loops that are to be avoided (omlx #3011: 20 tokens missed a loop
of 50). Tokens that end an answer are left alone: every earlier turn ended with one, and an answer has to end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.sampling.params import SamplingParams


def biased(logits: Tensor, params: SamplingParams) -> Tensor:
    """`logits` `[vocab]` with the logit bias added."""
    if not params.logit_bias:
        return logits
    bias = dict(params.logit_bias)
    ids = torch.tensor(list(bias), device=logits.device)
    return logits.index_add(0, ids, torch.tensor(list(bias.values()), dtype=logits.dtype, device=logits.device))


def penalised_times(params: SamplingParams, history: Sequence[int], spared: frozenset[int]) -> Counter[int]:
    """How often each token that is penalised occurs in the last `penalty_tokens` tokens; none without penalties."""
    if params.repetition_penalty == 1 and params.presence_penalty == 0 and params.frequency_penalty == 0:
        return Counter()
    return Counter(token for token in history[-params.penalty_tokens :] if token not in spared)


def penalised(logits: Tensor, params: SamplingParams, history: Sequence[int], spared: frozenset[int]) -> Tensor:
    """`logits` `[vocab]` after the penalties for the last `penalty_tokens` tokens of `history`, `spared` left alone.

    Each distinct token is penalised once: repetition (CTRL, arXiv 1909.05858) divides a positive logit and multiplies
    a negative one, presence is subtracted. Frequency is subtracted once for each time that the token occurs.
    """
    counts = penalised_times(params, history, spared)
    if not counts:
        return logits
    ids = torch.tensor(list(counts), dtype=torch.int64, device=logits.device)
    times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
    old, factor = logits[ids], params.repetition_penalty
    new = torch.where(old > 0, old / factor, old * factor)
    return logits.index_copy(0, ids, new - params.presence_penalty - params.frequency_penalty * times)
