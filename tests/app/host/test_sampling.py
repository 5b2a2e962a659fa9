"""The settings of an answer on their way into the engine's own words."""

from __future__ import annotations

from dataclasses import fields

import pytest

from app.host.engine_child import sampling_params
from app.host.sampling import JsonSchema, Regex, Sampling
from engine.sampling import params
from engine.sampling.params import SamplingParams
from engine.types import EngineError

SET = Sampling(
    temperature=1.5,
    top_k=7,
    top_p=0.5,
    seed=3,
    max_tokens=11,
    stop=("x", "y"),
    min_p=0.1,
    repetition_penalty=1.2,
    presence_penalty=0.5,
    frequency_penalty=-0.5,
    penalty_tokens=99,
    logit_bias=((5, 1.0),),
    banned=("z",),
    constraint=Regex("a+"),
    end_loops=False,
)


def test_nothing_is_lost_on_the_way() -> None:
    assert {f.name for f in fields(Sampling)} == {f.name for f in fields(SamplingParams)}
    got = sampling_params(SET)
    for name in (f.name for f in fields(Sampling) if f.name != "constraint"):
        assert getattr(got, name) == getattr(SET, name) != getattr(Sampling(), name), name
    assert got.constraint == params.Regex("a+")
    assert sampling_params(Sampling(constraint=JsonSchema("{}"))).constraint == params.JsonSchema("{}")


def test_without_a_seed_each_answer_has_its_own() -> None:
    assert len({sampling_params(Sampling()).seed for _ in range(9)}) == 9


def test_what_the_engine_refuses_is_refused_by_a_sentence() -> None:
    with pytest.raises(EngineError, match="min_p is 2"):
        sampling_params(Sampling(min_p=2))
