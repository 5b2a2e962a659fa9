from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.sampling.draw import best, drawn
from engine.sampling.filters import filtered, topk
from engine.sampling.params import SamplingParams
from engine.sampling.penalties import biased, penalised
from engine.sampling.sampler import Sampler
from engine.types import EngineError, Position
from kernels.noise import gumbel, noise_key
from tests.engine.helpers import one_sentence

LOGITS = torch.tensor([1.0, 2.5, -0.5, 2.0, 0.0, 1.5])
DRAWS = 1500


def probabilities_of(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    candidates = filtered(logits, params)
    chances = torch.zeros(len(logits), dtype=torch.float64)
    return chances.index_add(0, candidates.ids, torch.softmax(candidates.scores, 0))


def sample(logits: torch.Tensor, params: SamplingParams, position: int) -> int:
    token = Sampler(params).draw(logits, [], Position(position))
    assert token is not None
    return token


def exact(logits: torch.Tensor, params: SamplingParams) -> list[float]:
    """Probabilities by hand: temperature, min-p, top-k, top-p, in that order."""
    high = float(logits.max())
    weights = [math.exp((x - high) / params.temperature) for x in logits.tolist()]
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    order = [i for i in order if weights[i] >= params.min_p]
    if params.top_k:
        order = [i for i in order if weights[i] >= weights[order[: params.top_k][-1]]]
    total, mass, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        if mass >= params.top_p:
            break
        kept.append(i)
        mass += weights[i] / total
    chosen = sum(weights[i] for i in kept)
    return [weights[i] / chosen if i in kept else 0.0 for i in range(len(weights))]


def chi_square(counts: list[int], probabilities: list[float]) -> float:
    draws = sum(counts)
    assert all(not n for n, p in zip(counts, probabilities, strict=True) if p == 0)
    return sum((n - draws * p) ** 2 / (draws * p) for n, p in zip(counts, probabilities, strict=True) if p > 0)


CASES = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.6),
    SamplingParams(temperature=2.0, top_k=4),
    SamplingParams(temperature=1.0, top_p=0.8),
    SamplingParams(temperature=1.3, top_k=5, top_p=0.9),
    SamplingParams(temperature=1.5, min_p=0.2),
    SamplingParams(temperature=1.5, min_p=0.1, top_k=4, top_p=0.9),
]


@pytest.mark.parametrize("params", CASES)
@pytest.mark.parametrize("over", ["positions", "seeds"])
def test_draws_follow_the_exact_probabilities(params: SamplingParams, over: str) -> None:
    want = exact(LOGITS, params)
    torch.testing.assert_close(probabilities_of(LOGITS, params), torch.tensor(want, dtype=torch.float64))
    counts = [0] * len(want)
    for n in range(DRAWS):
        seed, position = (11, n) if over == "positions" else (n, 11)
        counts[sample(LOGITS, replace(params, seed=seed), position)] += 1
    # The 0.9999 quantile of chi-square with 5 degrees of freedom (fewer where tokens are filtered out) is 25.7.
    assert chi_square(counts, want) < 25.7


def test_one_draw_says_nothing_about_the_next() -> None:
    logits = torch.zeros(3)
    draws = [sample(logits, SamplingParams(temperature=1.0, seed=5), Position(t)) for t in range(DRAWS)]
    pairs = [0] * 9
    for first, second in pairwise(draws):
        pairs[3 * first + second] += 1
    assert chi_square(pairs, [1 / 9] * 9) < 31.8  # 0.9999 quantile, 8 degrees of freedom


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**40), st.floats(0.1, 3))
def test_the_same_seed_and_position_draw_the_same(seed: int, position: int, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, seed=seed)
    first = sample(LOGITS, params, Position(position))
    torch.manual_seed(position % 1000)  # the global generator plays no part
    assert sample(LOGITS, params, Position(position)) == first


def test_seeds_and_positions_give_different_draws() -> None:
    logits = torch.zeros(1000)
    by_position = {sample(logits, SamplingParams(temperature=1.0, seed=1), Position(t)) for t in range(40)}
    by_seed = {sample(logits, SamplingParams(temperature=1.0, seed=s), Position(1)) for s in range(40)}
    assert len(by_position) > 30
    assert len(by_seed) > 30


def kept(logits: list[float], **filters: float) -> list[int]:
    probabilities = probabilities_of(
        torch.tensor(logits, dtype=torch.float32), SamplingParams(temperature=1.0, **filters)
    )  # type: ignore[arg-type]
    assert float(probabilities.sum()) == pytest.approx(1)
    return [i for i, p in enumerate(probabilities.tolist()) if p > 0]


def test_top_k() -> None:
    assert kept([0, 3, 1, 2], top_k=1) == [1]
    assert kept([0, 3, 1, 2], top_k=3) == [1, 2, 3]
    assert kept([0, 3, 1, 2], top_k=9) == [0, 1, 2, 3]
    assert kept([0, 2, 2, 1], top_k=1) == [1, 2]  # equals of the last kept one stay


def test_top_p() -> None:
    halves = [math.log(0.5), math.log(0.25), math.log(0.125), math.log(0.125)]
    assert kept(halves, top_p=0.4) == [0]
    assert kept(halves, top_p=0.6) == [0, 1]
    assert kept(halves, top_p=0.99) == [0, 1, 2, 3]
    assert kept([0, 0], top_p=0.5) == [0]  # exactly reached is reached
    assert kept([1, 1, 1, 1], top_p=0.45) == [0, 1]  # of equals the first
    assert kept([1, 1, 1, 1], top_p=1e-9) == [0]


def test_min_p() -> None:
    shares = [math.log(0.5), math.log(0.25), math.log(0.05), math.log(0.2)]
    assert kept(shares, min_p=0.45) == [0, 1]
    assert kept(shares, min_p=0.11) == [0, 1, 3]
    assert kept(shares, min_p=0.999) == [0]


@given(
    st.lists(st.floats(-9, 9, width=16), min_size=1, max_size=40),
    st.floats(0.3, 3),
    st.integers(0, 12),
    st.floats(0.02, 1),
    st.floats(0, 0.9),
)
def test_filters_are_those_of_the_plain_definition(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = torch.tensor(values)
    params = SamplingParams(temperature, top_k, top_p, min_p=min_p)
    got, want = probabilities_of(logits, params), torch.tensor(exact(logits, params), dtype=torch.float64)
    # A threshold that is met to the last bit may fall either way.
    cut = want[want > 0].min()
    assert torch.allclose(got, want, atol=1e-6) or (got > 0).sum() != (want > 0).sum()
    assert (got[want > 0] > 0).sum() >= (want > 0).sum() - (want == cut).sum()


def test_many_equals_of_the_last_kept_one_stay() -> None:
    assert kept([1.0] + [0.0] * 50 + [-1.0] * 50, top_k=3) == list(range(51))


# --- the random numbers ---


@given(st.integers(0, 2**31), st.integers(1, 100), st.sampled_from([320, 4096, 6400, 6401]), st.integers(1, 50))
def test_the_highest_by_groups_are_the_highest(seed: int, count: int, vocab: int, levels: int) -> None:
    """With few levels most values are equals; with damaged or masked ones among them."""
    values = torch.randint(levels, (vocab,), generator=torch.Generator().manual_seed(seed)).float()
    values[seed % vocab :: 97] = -math.inf
    if seed % 5 == 0:
        values[seed % 301] = math.nan
    high, ids = topk(values, count)
    torch.testing.assert_close(high, torch.topk(values, count).values, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(values[ids], high, rtol=0, atol=0, equal_nan=True)
    assert len(set(ids.tolist())) == count


@given(st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 2.0, math.inf, math.nan]), min_size=1, max_size=200))
def test_the_best_is_the_first_of_the_highest(values: list[float]) -> None:
    want = next((i for i, x in enumerate(values) if math.isnan(x)), values.index(max(values)))
    token, score = best(torch.tensor(values))
    assert token == want
    assert score == values[want] or (math.isnan(score) and math.isnan(values[want]))


def test_they_are_splitmix64s() -> None:
    """The published generator in plain integers, as it would number the tokens one after the other."""
    mask, state = 2**64 - 1, 0
    want = []
    for _ in range(5):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        uniform = ((z ^ z >> 31) // 2**12 + 0.5) / 2**52
        want.append(-math.log(-math.log(uniform)))
    # Seed 0 at position 0 is the state 0.
    torch.testing.assert_close(gumbel(torch.arange(5), noise_key(0, 0)), torch.tensor(want, dtype=torch.float64))
    assert want[0] == pytest.approx(-math.log(-math.log(0xE220A8397B1DCDAF / 2**64)), abs=1e-9)


def test_a_token_draws_the_same_number_whoever_else_is_in_the_draw() -> None:
    everything = gumbel(torch.arange(1000), noise_key(7, 123456789))
    some = torch.tensor([999, 3, 500])
    assert torch.equal(gumbel(some, noise_key(7, 123456789)), everything[some])


def test_they_are_gumbels() -> None:
    noise = torch.cat([gumbel(torch.arange(2000), noise_key(seed, t)) for seed in range(4) for t in (0, 1, 10**9)])
    assert torch.isfinite(noise).all()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.04)  # Euler's constant
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.1)


def test_greedy_takes_the_best_and_no_noise() -> None:
    assert sample(LOGITS, SamplingParams(), Position(0)) == 1
    assert {sample(LOGITS, SamplingParams(seed=s), Position(s)) for s in range(20)} == {1}


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30, 1e-3])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_p=0.9, top_k=3)
    assert {sample(LOGITS, params, Position(t)) for t in range(20)} == {1}


@example([0.0, 6.546916948965118e-23], 0, 0.5)
@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=30), st.integers(0, 30), st.floats(0.01, 1))
def test_what_is_filtered_out_is_never_drawn(values: list[float], top_k: int, top_p: float) -> None:
    logits = torch.tensor(values)
    params = SamplingParams(temperature=1.0, top_k=top_k, top_p=top_p)
    probabilities = probabilities_of(logits, params)
    assert float(probabilities.sum()) == pytest.approx(1)
    best = (logits >= logits.max() - 1e-6) & (probabilities > 0)  # of equals only one need stay
    assert bool(best.any())
    assert all(float(probabilities[sample(logits, params, Position(t))]) > 0 for t in range(5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": 11.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": math.nan},
        {"max_tokens": 0},
        {"min_p": -0.1},
        {"min_p": 1.0},
        {"min_p": math.nan},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": math.inf},
        {"presence_penalty": -2.1},
        {"frequency_penalty": math.nan},
        {"penalty_tokens": 0},
        {"logit_bias": ((3, 101.0),)},
        {"logit_bias": ((-1, 1.0),)},
        {"banned": ("",)},
    ],
)
def test_wrong_values_are_refused_by_a_sentence(wrong: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as refused:
        SamplingParams(**wrong)
    assert next(iter(wrong)) in one_sentence(refused.value)


def test_scores_that_are_no_numbers_are_refused() -> None:
    for params in (SamplingParams(), SamplingParams(temperature=1.0, top_k=2, top_p=0.9)):
        with pytest.raises(EngineError) as refused:
            Sampler(params).draw(torch.full((5,), math.nan), [], Position(1))
        assert "NaN" in one_sentence(refused.value)


def test_what_was_taken_back_is_not_drawn_again() -> None:
    for params in (SamplingParams(), SamplingParams(temperature=1.0, top_k=3, top_p=0.9)):
        sampler, taken = Sampler(params), set[int]()
        for _ in range(len(LOGITS)):
            token = sampler.draw(LOGITS, [], Position(3), taken)
            assert token is not None
            assert token not in taken
            taken.add(token)
        assert sampler.draw(LOGITS, [], Position(3), taken) is None


@pytest.mark.parametrize("params", [*CASES, SamplingParams()])
def test_nothing_waits_for_the_device_before_the_token_is_drawn(params: SamplingParams) -> None:
    """Tensors without values: whatever asked for one (an item, a count of what is not zero) would raise."""
    meta = torch.device("meta")
    params = replace(params, repetition_penalty=1.1, presence_penalty=0.1, logit_bias=((3, 1.0),))
    logits = torch.empty(1000, device=meta)
    scores = penalised(biased(logits, params), params, [1, 2, 2, 5], frozenset({5}))
    if params.temperature == 0:
        assert scores.argmax().shape == ()
    else:
        assert drawn(filtered(scores, params), params.seed, Position(7)).shape == ()
