"""The torch twin that draws tokens against the engine's sampler, and what launcher and twin refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sampling.params import SamplingParams
from engine.sampling.sampler import Sampler
from engine.sampling.together import Ask, row_settings
from engine.types import Position
from kernels.sample import sample, sample_torch
from tests.kernels.sample_world import SETTINGS, draws_of, edits_of, logits_of

CPU = torch.device("cpu")
PENALTIES = st.sampled_from([{}, {"repetition_penalty": 1.3, "frequency_penalty": 0.2}, {"presence_penalty": -0.5}])
BIAS = st.sampled_from([(), ((3, 2.0), (0, -100.0))])


@given(st.sampled_from(SETTINGS), PENALTIES, BIAS, st.integers(0, 99), st.booleans(), st.integers(0, 9))
def test_the_twin_draws_as_the_engines_sampler(setting, penalties, bias, seed, coarse, back) -> None:
    temperature, top_k, top_p, min_p = setting
    params = SamplingParams(temperature, top_k, top_p, seed=seed, min_p=min_p, logit_bias=bias, **penalties)
    logits, history, taken_back = logits_of(1, 60, seed, coarse=coarse), [3, 5, 5, 7, 2], frozenset(range(back))
    sampler = Sampler(params, spared=frozenset({2}))
    wanted = sampler.draw(logits[0], history, Position(seed), taken_back)
    draws, edits = row_settings([Ask(sampler, logits[0], history, Position(seed), taken_back)], CPU)
    assert sample_torch(logits, draws, edits).tolist() == [wanted]


@pytest.mark.parametrize("launcher", [sample, sample_torch])
def test_a_wrong_argument_is_named(launcher) -> None:
    draws, edits = draws_of(SETTINGS[:2], 0), edits_of(2, 8, 3, 0)
    for arguments, sentence in (
        ((torch.zeros(8), draws), "logits has shape (8,): expected [rows, vocab]"),
        ((torch.zeros(2, 8).half(), draws), "logits is torch.float16: expected torch.float32"),
        ((torch.zeros(8, 2).t(), draws), "logits is not contiguous"),
        ((torch.zeros(3, 8), draws), "temperature has shape (2,): expected (3,)"),
        ((torch.zeros(2, 8), replace(draws, top_k=draws.top_k.int())), "top_k is torch.int32: expected torch.int64"),
        ((torch.zeros(2, 8), draws, replace(edits, bias=edits.bias[:, :2])), "bias has shape (2, 2): expected (2, 3)"),
        ((torch.zeros(2, 8), draws, replace(edits, ids=edits.ids.int())), "ids is torch.int32: expected torch.int64"),
    ):
        with pytest.raises(ValueError, match=r"expected|contiguous") as raised:
            launcher(*arguments)
        assert sentence in str(raised.value)
