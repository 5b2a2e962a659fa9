from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, FinishReason, TextDelta
from engine.model.load import load_model
from engine.sampling.constraint import ConstraintError, Constraints
from engine.sampling.params import Constraint, JsonSchema, Regex, SamplingParams
from engine.types import MessageKey
from tests.engine.helpers import one_sentence
from tests.engine.test_text import wrap
from tests.engine.tiny import CPU, Tiny
from tests.engine.tokenizers_for_tests import byte_level, sentence_piece

SPECIALS = ("<s>", "</s>")
LETTERS = 'abcdefgz{}[]":,0123456789 truefalsnl日本é'
TOKENIZERS = {
    "byte level": wrap(byte_level(SPECIALS, extra=(b'{"', b'": ', b"ab", b"true", "日".encode()[:2]))),
    "sentence piece": wrap(sentence_piece("prepend", SPECIALS, LETTERS)),
    "metaspace": wrap(sentence_piece("always", SPECIALS, LETTERS)),
}
SMALL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "kind": {"enum": ["a", "日本", 3]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "size": {"type": "integer", "minimum": -20, "maximum": 999},
    },
    "required": ["name", "tags", "size"],
    "additionalProperties": False,
}
fields = st.one_of(
    st.fixed_dictionaries({"type": st.just("string"), "maxLength": st.integers(0, 4)}),
    st.fixed_dictionaries({"type": st.just("integer"), "minimum": st.integers(-50, 0), "maximum": st.integers(0, 50)}),
    st.fixed_dictionaries({"enum": st.lists(st.sampled_from(["x", "é", 1, True, None]), min_size=1, unique_by=str)}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}),
)
schemas = st.dictionaries(st.text("abé", min_size=1, max_size=3), fields, min_size=1, max_size=3).map(
    lambda properties: {
        "type": "object",
        "properties": properties,
        "required": sorted(properties)[:1],
        "additionalProperties": False,
    }
)


def is_one(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is one of those that `schemas` and SMALL describe."""
    if "enum" in schema:
        return any(value == choice and type(value) is type(choice) for choice in schema["enum"])
    match schema["type"]:
        case "object":
            known = schema["properties"]
            return (
                isinstance(value, dict)
                and set(schema["required"]) <= set(value) <= set(known)
                and all(is_one(inner, known[name]) for name, inner in value.items())
            )
        case "array":
            return (
                isinstance(value, list)
                and len(value) <= schema["maxItems"]
                and all(is_one(v, schema["items"]) for v in value)
            )
        case "string":
            return isinstance(value, str) and len(value) <= schema["maxLength"]
        case "integer":
            return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
        case "boolean":
            return isinstance(value, bool)
        case _:
            return value is None


def random_text(kind: str, constraint: Constraint, seed: int, most: int = 400) -> str:
    """What a model of pure chance writes under the constraint."""
    tokenizer = TOKENIZERS[kind]
    stop = tokenizer.token_id("</s>")
    assert stop is not None
    matcher = Constraints(tokenizer, tokenizer.vocab_size + 5, frozenset({stop})).matcher(constraint)
    generator, ids = torch.Generator().manual_seed(seed), list[int]()
    while not matcher.complete and len(ids) < most:
        allowed = matcher.allowed(CPU)
        assert allowed.shape == (tokenizer.vocab_size + 5,)
        token = int(torch.multinomial(allowed.double(), 1, generator=generator))
        if token == stop:
            break
        matcher.take(token)
        ids.append(token)
    assert len(ids) < most
    return tokenizer.decode(ids)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=25)
@given(schema=schemas, seed=st.integers(0, 999))
def test_what_is_written_under_a_schema_is_one_such_value(kind: str, schema: dict[str, Any], seed: int) -> None:
    value = json.loads(random_text(kind, JsonSchema(json.dumps(schema)), seed))
    assert is_one(value, schema), value


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("pattern", ["(ab|ba){2,4}", "[0-9]{2}:[0-9]{2}", "日本?é+é{2}|x", "[a-z]{0,5}[.!]"])
def test_what_is_written_under_a_pattern_matches_it(kind: str, pattern: str) -> None:
    for seed in range(6):
        assert re.fullmatch(pattern, random_text(kind, Regex(pattern), seed))


def test_taken_back_tokens_are_as_if_never_written() -> None:
    tokenizer = TOKENIZERS["byte level"]
    stop = tokenizer.token_id("</s>")
    assert stop is not None
    matcher = Constraints(tokenizer, tokenizer.vocab_size, frozenset({stop})).matcher(Regex("ab|cd"))
    a, b, c, d = (tokenizer.encode_plain(letter)[0] for letter in "abcd")
    before = matcher.allowed(CPU)
    for token in (a, b):
        matcher.take(token)
    assert matcher.complete
    matcher.take_back(2)
    assert not matcher.complete
    assert torch.equal(matcher.allowed(CPU), before)
    for token in (c, d):
        assert matcher.allowed(CPU)[token]
        matcher.take(token)
    assert matcher.complete


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (JsonSchema("{"), "is not JSON"),
        (JsonSchema("[1]"), "must be an object"),
        (JsonSchema('{"type": "objct"}'), "objct"),
        (JsonSchema('{"$ref": "#/nowhere"}'), "nowhere"),
        (JsonSchema('{"type": "array", "uniqueItems": true}'), "uniqueItems"),
        (Regex("(a"), "unclosed group"),
        (Regex("a(?=b)"), "look-around"),
    ],
)
def test_a_wrong_constraint_is_refused_by_a_sentence(tiny: Tiny, wrong: Constraint, says: str) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=256))
    session = engine.open_session("s")
    engine.add_user(session, MessageKey("q"), "hello")
    with pytest.raises(ConstraintError, match=says) as refused:
        engine.generate(session, MessageKey("a"), SamplingParams(constraint=wrong))
    one_sentence(refused.value)
    assert not engine.busy
    engine.generate(session, MessageKey("a"), SamplingParams(max_tokens=1))


def test_a_model_that_ends_nothing_cannot_be_constrained(tiny: Tiny) -> None:
    engine = Engine(replace(tiny.ours, stop_ids=frozenset()), EngineConfig(quota_tokens=256))
    session = engine.open_session("s")
    engine.add_user(session, MessageKey("q"), "hello")
    with pytest.raises(ConstraintError) as refused:
        engine.generate(session, MessageKey("a"), SamplingParams(constraint=Regex("a")))
    one_sentence(refused.value)


def answer(engine: Engine, params: SamplingParams) -> AnswerFinished:
    session = engine.open_session("s")
    engine.add_user(session, MessageKey("q"), "Describe a town as JSON.")
    engine.generate(session, MessageKey("a"), params)
    events = []
    while engine.busy:
        events += engine.step()
    finished = events[-1]
    assert isinstance(finished, AnswerFinished)
    assert finished.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    engine.close_session(session)
    return finished


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    params=st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.7, 3.0]),
        top_k=st.sampled_from([0, 1, 5]),
        top_p=st.sampled_from([1.0, 0.5]),
        min_p=st.sampled_from([0.0, 0.3]),
        repetition_penalty=st.sampled_from([1.0, 1.5]),
        seed=st.integers(0, 99),
        constraint=st.just(JsonSchema(json.dumps(SMALL))),
    )
)
def test_a_constrained_answer_always_parses(tiny: Tiny, params: SamplingParams) -> None:
    finished = answer(Engine(tiny.ours, EngineConfig(quota_tokens=512)), params)
    assert finished.reason is FinishReason.STOP
    assert is_one(json.loads(finished.text), SMALL)


def test_a_banned_string_bends_a_constrained_answer(tiny: Tiny) -> None:
    engine = Engine(tiny.ours, EngineConfig(quota_tokens=256, page_size=4))
    wanted = tuple((tiny.ours.tokenizer.encode_plain(c)[0], 90.0) for c in "abcd")

    def under(pattern: str, *banned: str) -> tuple[FinishReason, str]:
        finished = answer(engine, SamplingParams(constraint=Regex(pattern), banned=banned, logit_bias=wanted))
        engine.check()
        return finished.reason, finished.text

    assert under("abc|xy") == (FinishReason.STOP, "abc")
    assert under("abc|abx", "abc") == (FinishReason.STOP, "abx")
    assert under("abcdabcd|xyx", "abcdabcd") == (FinishReason.STOP, "xyx")
    assert under("(abcd){30}x|yy", "dx") == (FinishReason.BLOCKED, "abcd" * 29 + "abc")
    assert under("abc", "abc") == (FinishReason.BLOCKED, "")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_starter_model_writes_json(starter_path: Path) -> None:
    engine = Engine(load_model(starter_path, device=CPU, dtype=torch.float32), EngineConfig(quota_tokens=512))
    for seed in range(4):
        params = SamplingParams(temperature=0.8, seed=seed, constraint=JsonSchema(json.dumps(SMALL)))
        finished = answer(engine, params)
        assert finished.reason is FinishReason.STOP
        assert is_one(json.loads(finished.text), SMALL)
    year = answer(engine, SamplingParams(constraint=Regex("It was founded in [0-9]{4}[.]")))
    assert re.fullmatch("It was founded in [0-9]{4}[.]", year.text)
