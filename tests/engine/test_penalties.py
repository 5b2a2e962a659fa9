from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished
from engine.sampling.params import SamplingParams
from engine.sampling.penalties import biased, penalised
from engine.types import EngineError, MessageKey
from tests.engine.helpers import one_sentence
from tests.engine.tiny import Tiny

VOCAB = 12
NONE = frozenset[int]()


def plainly(logits: list[float], history: list[int], params: SamplingParams, spared: frozenset[int]) -> list[float]:
    """Token by token: once for each distinct one, but frequency."""
    out, recent = list(logits), history[-params.penalty_tokens :]
    for token in set(recent) - spared:
        penalty = params.repetition_penalty
        out[token] = out[token] / penalty if out[token] > 0 else out[token] * penalty
        out[token] -= params.presence_penalty
        out[token] -= params.frequency_penalty * recent.count(token)
    return out


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=VOCAB, max_size=VOCAB),
    st.lists(st.integers(0, VOCAB - 1), max_size=40),
    st.builds(
        SamplingParams,
        repetition_penalty=st.floats(0.5, 2),
        presence_penalty=st.floats(-2, 2),
        frequency_penalty=st.floats(-2, 2),
        penalty_tokens=st.integers(1, 30),
    ),
    st.frozensets(st.integers(0, VOCAB - 1), max_size=3),
)
def test_penalties_are_those_of_the_plain_definition(
    logits: list[float], history: list[int], params: SamplingParams, spared: frozenset[int]
) -> None:
    got = penalised(torch.tensor(logits), params, history, spared)
    want = torch.tensor(plainly(logits, history, params, spared))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-4)


def test_a_token_said_eighty_times_is_penalised_once() -> None:
    logits = torch.full((VOCAB,), 4.0)
    once, often = (
        penalised(logits, SamplingParams(repetition_penalty=1.1, presence_penalty=0.5), [3] * n, NONE) for n in (1, 80)
    )
    assert torch.equal(once, often)
    assert float(once[3]) == pytest.approx(4 / 1.1 - 0.5)
    assert float(once[4]) == 4.0


def test_without_penalties_nothing_is_touched() -> None:
    logits = torch.randn(VOCAB)
    assert penalised(logits, SamplingParams(), [1, 2, 3], NONE) is logits
    assert biased(logits, SamplingParams()) is logits


def test_bias_is_added_to_the_named_tokens() -> None:
    logits = torch.zeros(VOCAB)
    assert biased(logits, SamplingParams(logit_bias=((2, 1.5), (4, -100.0)))).tolist()[:5] == [0, 0, 1.5, 0, -100]
    assert not logits.any()


Q, A = MessageKey("q"), MessageKey("a")


def answer(engine: Engine, params: SamplingParams, *, before: list[tuple[str, str]] | None = None) -> str:
    session = engine.open_session("s")
    for number, (question, said) in enumerate(before or []):
        engine.add_user(session, MessageKey(f"q{number}"), question)
        engine.add_answer(session, MessageKey(f"a{number}"), said)
    engine.add_user(session, Q, "say something")
    engine.generate(session, A, params)
    events = []
    while engine.busy:
        events += engine.step()
    assert isinstance(events[-1], AnswerFinished)
    engine.close_session(session)
    return events[-1].text


def test_a_bias_for_a_token_that_is_not_there_is_refused(tiny: Tiny) -> None:
    with pytest.raises(EngineError) as refused:
        answer(Engine(tiny.ours, EngineConfig(quota_tokens=256)), SamplingParams(logit_bias=((259, 1.0),)))
    assert "259 tokens" in one_sentence(refused.value)


def test_a_strong_penalty_says_nothing_twice(tiny: Tiny) -> None:
    engine = Engine(replace(tiny.ours, stop_ids=frozenset({256, 257, 258})), EngineConfig(quota_tokens=512))
    # Printable letters only: each is one token of one character.
    bias = tuple((tiny.ours.tokenizer.encode_plain(c)[0], 90.0) for c in "abcdefghijklmnopqrstuvwxyz")
    text = answer(engine, SamplingParams(max_tokens=20, logit_bias=bias, frequency_penalty=2, presence_penalty=2))
    often = answer(engine, SamplingParams(max_tokens=20, logit_bias=bias))
    assert len(set(text)) > len(set(often))


def test_the_history_is_text_and_not_the_window(tiny: Tiny) -> None:
    """The same chat draws the same in a window that has evicted the penalised tokens' pages and in one that has not:
    what the penalties do is a function of the last tokens of the text."""
    params = SamplingParams(repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.5, penalty_tokens=200)
    history = torch.randint(0, 259, (500,)).tolist()
    logits = torch.randn(259)
    after_eviction = penalised(logits, params, history[-200:], NONE)
    assert torch.equal(penalised(logits, params, history, NONE), after_eviction)
