"""The kernels that draw tokens against their twin. Run by test_under_triton.py in a process of its own."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from kernels.runtime import INTERPRETED, KernelUnavailableError
from kernels.sample import NO_NUMBER, NOTHING, sample, sample_torch
from tests.kernels.sample_world import SETTINGS, draws_of, edits_of, logits_of

DEVICE = "cpu" if INTERPRETED else "cuda"


def on(tensors, device):
    return type(tensors)(*(getattr(tensors, field.name).to(device) for field in fields(tensors)))


def check(logits, settings, seed=0, edits=None):
    draws, ours, theirs = draws_of(settings, seed), logits.clone().to(DEVICE), logits.clone()
    wanted = sample_torch(theirs, draws, edits)
    got = sample(ours, on(draws, DEVICE), None if edits is None else on(edits, DEVICE)).cpu()
    assert got.tolist() == wanted.tolist()
    torch.testing.assert_close(ours.cpu(), theirs, atol=1e-6, rtol=1e-6, equal_nan=True)
    return got.tolist()


@pytest.mark.parametrize(("vocab", "coarse"), [(50, True), (4097, False)])
def test_every_setting_draws_as_the_twin_does(vocab, coarse):
    rows = len(SETTINGS)
    check(logits_of(rows, vocab, vocab, coarse=coarse), SETTINGS, seed=vocab)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("coarse", [True, False])
def test_many_seeds(seed, coarse):
    settings = SETTINGS * 3
    logits = logits_of(len(settings), 3000, seed, coarse=coarse)
    check(logits, settings, seed=seed, edits=edits_of(len(settings), 3000, 40, seed))


@pytest.mark.parametrize("most", [1, 300])
def test_penalties_bias_and_tokens_taken_back(most):
    settings = SETTINGS[:4]
    check(logits_of(4, 500, most), settings, edits=edits_of(4, 500, most, seed=most))


def test_draws_follow_the_probabilities():
    """One draw at each of 100 positions; chi-square's 0.9999 quantile with 3 degrees of freedom is 21.1."""
    chances = torch.tensor([0.5, 0.25, 0.15, 0.1])
    logits = chances.log().repeat(100, 1).to(DEVICE)
    drawn = sample(logits, on(draws_of([(1.0, 0, 1.0, 0.0)] * 100, seed=3), DEVICE)).cpu()
    counts = torch.bincount(drawn, minlength=4)
    assert float(((counts - 100 * chances).square() / (100 * chances)).sum()) < 21.1


def test_a_row_draws_alike_alone_and_beside_others():
    logits, settings = logits_of(3, 700, 1).to(DEVICE), SETTINGS[1:4]
    together = sample(logits, on(draws_of(settings, 5), DEVICE)).tolist()
    alone = [
        sample(logits[row : row + 1].clone(), on(draws_of(settings[row : row + 1], 5, row), DEVICE)).item()
        for row in range(3)
    ]
    assert together == alone


def test_rows_without_a_token():
    """All masked out; NaN; one token left; infinitely likely."""
    logits = torch.full((4, 300), float("-inf"))
    logits[1, 7] = float("nan")
    logits[2, 299] = -5.0
    logits[3, 11:] = 1.0
    logits[3, 20] = float("inf")
    for settings in ([SETTINGS[0]] * 4, [SETTINGS[1]] * 4, [SETTINGS[2]] * 4):
        assert check(logits, settings) == [NOTHING, NO_NUMBER, 299, 20]


def test_of_equals_the_first_are_kept():
    """Ten equal tokens, of which top-p keeps four, spread over two tiles; zeros of both signs are equal."""
    logits = torch.full((1, 6000), -50.0)
    logits[0, 500::550] = torch.tensor([0.0, -0.0] * 5)
    chosen = {check(logits, [(1.0, 0, 0.35, 0.0)], seed)[0] for seed in range(6)}
    assert len(chosen) > 1
    assert chosen <= {500, 1050, 1600, 2150}


def test_tensors_elsewhere_are_refused():
    elsewhere = "meta" if INTERPRETED else "cpu"
    draws = on(draws_of(SETTINGS[:2], 0), elsewhere)
    with pytest.raises(KernelUnavailableError, match=r"call sample_torch there"):
        sample(torch.zeros(2, 8, device=elsewhere), draws)
