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

All of it runs where the logits are. The one transfer from the device is the drawn token with its score. On a GPU the
answers of a step are drawn together instead, see `engine.sampling.together`; what is drawn is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from engine.sampling.constraint import Matcher
from engine.sampling.draw import best, drawn
from engine.sampling.filters import filtered
from engine.sampling.params import SamplingParams
from engine.sampling.penalties import biased, penalised, penalised_times
from engine.types import EngineError, Position
from kernels.sample import NO_NUMBER, NOTHING


class Sampler:
    """Draws the tokens of one answer. `spared` tokens (those that end an answer) are never penalised."""

    def __init__(
        self, params: SamplingParams, *, spared: frozenset[int] = frozenset(), matcher: Matcher | None = None
    ) -> None:
        self.params, self._spared, self._matcher = params, spared, matcher

    def draw(
        self, logits: Tensor, history: Sequence[int], position: Position, taken_back: Collection[int] = ()
    ) -> int | None:
        """Draw the token for `position` from `logits` `[vocab]`, after `history`; never one of `taken_back`.

        None when the constraint and `taken_back` leave no token. Raises EngineError for logits that are no numbers.
        """
        params = self.params
        scores = penalised(
            biased(self._without(self.masked(logits.float()), taken_back), params), params, history, self._spared
        )
        if params.temperature == 0:
            token, score = best(scores)
        else:
            candidates = filtered(scores, params)
            index = drawn(candidates, params.seed, position)
            pair = candidates.ids[index], candidates.scores[index]
            token, score = torch.stack([one.double() for one in pair]).tolist()
        return self.judged(int(token) if score > -math.inf else NOTHING, taken_back)

    def penalised_times(self, history: Sequence[int]) -> Counter[int]:
        """How often each token that is penalised occurs."""
        return penalised_times(self.params, history, self._spared)

    def masked(self, logits: Tensor) -> Tensor:
        """`logits` `[vocab]`, without the tokens that the constraint rules out."""
        if self._matcher is None:
            return logits
        return logits.masked_fill(~self._matcher.allowed(logits.device), -math.inf)

    def judged(self, token: int, taken_back: Collection[int]) -> int | None:
        """A token as `kernels.sample` gives it; None where none was left. Raises EngineError for logits that are no
        numbers: without a mask none can be -inf, that is what a damaged file or an overflow leaves."""
        if token == NO_NUMBER or (token == NOTHING and self._matcher is None and not taken_back):
            raise EngineError(
                "the model's scores are no numbers (NaN): its weights are damaged or too large for their type; "
                "fetch the model again or take another"
            )
        return None if token == NOTHING else token

    def _without(self, logits: Tensor, taken_back: Collection[int]) -> Tensor:
        if not taken_back:
            return logits
        return logits.index_fill(0, torch.tensor(list(taken_back), device=logits.device), -math.inf)
