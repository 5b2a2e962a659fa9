"""One answer's way from logits to the next token.

The steps are those of vLLM, in its order (llama.cpp divides by the temperature last):

1. the constraint, and tokens that were taken back here, are masked out
2. logit bias
3. repetition, presence and frequency penalties
4. temperature; 0 takes the highest score, by all of the above, and ends here
5. min-p
6. top-k
7. top-p
8. the draw, by seed and position

All of it runs where the logits are. The one transfer from the device is the drawn token with its score.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from engine.sampling.constraint import Matcher
from engine.sampling.draw import best, drawn
from engine.sampling.filters import filtered
from engine.sampling.params import SamplingParams
from engine.sampling.penalties import biased, penalised
from engine.types import EngineError, Position


class Sampler:
    """Draws the tokens of one answer. `spared` tokens (those that end an answer) are never penalised."""

    def __init__(
        self, params: SamplingParams, *, spared: frozenset[int] = frozenset(), matcher: Matcher | None = None
    ) -> None:
        self._params, self._spared, self._matcher = params, spared, matcher

    def draw(
        self, logits: Tensor, history: Sequence[int], position: Position, taken_back: Collection[int] = ()
    ) -> int | None:
        """Draw the token for `position` from `logits` `[vocab]`, after `history`; never one of `taken_back`.

        None when the constraint and `taken_back` leave no token. Raises EngineError for logits that are no numbers.
        """
        params = self._params
        scores = penalised(biased(self._masked(logits.float(), taken_back), params), params, history, self._spared)
        if params.temperature == 0:
            chosen = best(scores)
            chosen_pair = chosen, scores[chosen]
        else:
            candidates = filtered(scores, params)
            index = drawn(candidates, params.seed, position)
            chosen_pair = candidates.ids[index], candidates.scores[index]
        token, score = torch.stack([one.double() for one in chosen_pair]).tolist()
        if score > -math.inf:
            return int(token)
        # Without a mask no logit can be -inf: these are what a damaged file or an overflow leaves.
        if self._matcher is None and not taken_back:
            raise EngineError(
                "the model's scores are no numbers (NaN): its weights are damaged or too large for their type; "
                "fetch the model again or take another"
            )
        return None

    def _masked(self, logits: Tensor, taken_back: Collection[int]) -> Tensor:
        if self._matcher is not None:
            logits = logits.masked_fill(~self._matcher.allowed(logits.device), -math.inf)
        if taken_back:
            logits = logits.index_fill(0, torch.tensor(list(taken_back), device=logits.device), -math.inf)
        return logits
