"""The engine with the Triton kernels against the dense reference. Run under the interpreter by test_by_kernel.py."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from engine.attention_gpu import by_kernel
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished
from engine.model.config import RopeConfig
from engine.model.decoder import Decoder, DecoderWeights, LayerWeights
from engine.model.linear import DenseLinear, Linear, WeightForm
from engine.model.load import load_model, open_model
from engine.model.mlp import GatedMlp
from engine.model.pointwise import rotated
from engine.model.rope import Rope, rotate
from engine.model.weights.quantised import LowBitLinear
from engine.runner import EagerRunner
from engine.sampling.params import Regex, SamplingParams
from engine.sampling.together import draw_together
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, Position
from engine.window import WindowShape
from kernels.low_bit_rows import low_bit_rows_torch
from kernels.runtime import serves
from tests.engine.family_models import make_model, write_model
from tests.engine.helpers import make_pages, make_session, poison, run_all, split_messages
from tests.engine.reference import reference_logits
from tests.engine.tiny import CPU, Tiny

PAGE = 16


def test_norms_and_gates_are_the_kernels_here() -> None:
    assert serves(CPU)


@pytest.mark.parametrize(
    "before", [12, 170, pytest.param(5, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.slow)]
)
def test_decoded_tokens_equal_the_reference(tiny: Tiny, before: int) -> None:
    check_decoded(tiny, before)


@pytest.fixture(scope="module")
def local_and_global(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Soft caps, and a native window that sometimes reaches some of the sinks."""
    folder = tmp_path_factory.mktemp("gemma2")
    caps = {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 5.0}
    theirs = make_model("gemma2", head_dim=16, sliding_window=50, num_hidden_layers=2, **caps)
    write_model(folder, theirs)
    return Tiny(folder, theirs, load_model(folder, device=CPU, dtype=torch.float32))


def test_local_layers_and_soft_caps(local_and_global: Tiny) -> None:
    check_decoded(local_and_global, 170)


def test_a_prompt_equals_the_reference(tiny: Tiny) -> None:
    check_prompt(tiny, 75, 40)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [16, 50, 90])
def test_long_prompts_equal_the_reference(tiny: Tiny, chunk: int) -> None:
    check_prompt(tiny, 200, chunk)


def test_a_prompt_in_local_layers(local_and_global: Tiny) -> None:
    check_prompt(local_and_global, 60, 25)


@pytest.mark.parametrize("form", [WeightForm.INT8, WeightForm.INT4])
def test_weights_in_few_bits_equal_the_same_weights_in_full(tiny: Tiny, form: WeightForm) -> None:
    """A chunk of 30 tokens by dequantised weights, then decoded tokens, and a tied table, by the kernels."""
    opened = open_model(tiny.folder, device=CPU, dtype=torch.float32, form=form)
    low = opened.load()
    assert opened.weights_bytes() == low.decoder.weights.bytes
    full = replace(low, decoder=Decoder(low.config, in_full(low.decoder.weights)))
    shape, rng = WindowShape(PAGE, 17, 3), random.Random(3)
    tokens = [rng.randrange(256) for _ in range(33)]
    found: list[dict[int, torch.Tensor]] = []
    for model in (low, full):
        pages = make_pages(model, shape.quota_pages, PAGE)
        session = make_session(pages, shape, tokens, [("m", tokens[17:])])
        rest = [session.pending.pop() for _ in range(3)][::-1]
        runner = EagerRunner(model.decoder, pages, CPU, partial(by_kernel, pages))
        computed = run_all(runner, pages, [session], 32)[session.id]
        for token in rest:
            session.pending.append(token)
            computed |= run_all(runner, pages, [session], 32)[session.id]
        found.append(computed)
    assert found[0].keys() == found[1].keys()
    assert max(found[0]) == len(tokens) - 1
    for position, logits in found[0].items():
        torch.testing.assert_close(logits, found[1][position], atol=2e-4, rtol=1e-4)


def in_full(weights: DecoderWeights) -> DecoderWeights:
    """The same numbers, dequantised by the twin."""

    def full(linear: Linear) -> DenseLinear:
        assert isinstance(linear, LowBitLinear)
        every = torch.arange(linear.weight.rows)
        return DenseLinear(low_bit_rows_torch(linear.weight, every, torch.float32), linear.bias)

    def layer(held: LayerWeights) -> LayerWeights:
        assert isinstance(held.mlp, GatedMlp)
        mlp = replace(held.mlp, gate_up=full(held.mlp.gate_up), down=full(held.mlp.down))
        return replace(held, qkv=full(held.qkv), out=full(held.out), mlp=mlp)

    return replace(
        weights, embedding=full(weights.embedding), head=full(weights.head), layers=tuple(map(layer, weights.layers))
    )


SAMPLED = [
    SamplingParams(temperature=0.9, top_k=30, top_p=0.9, seed=4, repetition_penalty=1.2, max_tokens=14),
    SamplingParams(max_tokens=14, logit_bias=((65, 4.0),), frequency_penalty=0.3),
    SamplingParams(temperature=1.2, min_p=0.02, seed=5, max_tokens=14, banned=("a", "e", "i", "o", "1", "2", "3", "4")),
    SamplingParams(temperature=1.0, seed=6, max_tokens=14, constraint=Regex("[a-d ]{2,9}z")),
]


def test_answers_drawn_together_are_those_drawn_one_by_one(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four chats that answer side by side, with guesses, strings that are taken back, and a constraint."""
    drawing = Mock(side_effect=draw_together)
    monkeypatch.setattr("engine.answer.draw_together", drawing)
    together, steps = answers_of(tiny), drawing.call_count
    assert steps > 10
    monkeypatch.setattr("engine.engine.serves", lambda _device: False)
    assert answers_of(tiny) == together
    assert drawing.call_count == steps
    assert len({text for text, _ in together}) == len(SAMPLED)


def answers_of(tiny: Tiny) -> list[tuple[str, int]]:
    """Each answer's text and how many tokens it has."""
    engine = Engine(tiny.ours, EngineConfig(192, page_size=16, sessions=len(SAMPLED), guess_tokens=4))
    for index, params in enumerate(SAMPLED):
        session = engine.open_session("s")
        engine.add_user(session, MessageKey("q"), "ababababab" + "cd" * index)
        engine.generate(session, MessageKey("a"), params)
    done: dict[int, tuple[str, int]] = {}
    while engine.busy:
        for event in engine.step():
            if isinstance(event, AnswerFinished):
                done[event.session] = (event.text, event.new_tokens)
    return [done[session] for session in sorted(done)]


def test_layers_without_positions(tmp_path: Path) -> None:
    theirs = make_model("smollm3", no_rope_layers=[1, 0], num_hidden_layers=2, head_dim=16)
    write_model(tmp_path, theirs)
    check_prompt(Tiny(tmp_path, theirs, load_model(tmp_path, device=CPU, dtype=torch.float32)), 50, 25)


@pytest.mark.parametrize("dims", [None, 8])
@pytest.mark.parametrize("two_phase", [True, False])
def test_rotation_equals_that_of_plain_torch(dims: int | None, two_phase: bool) -> None:
    """All of a head or the first of its dimensions, far from the beginning, out of one stacked projection."""
    rope = Rope(RopeConfig(theta=1e4, dims=dims), 16, CPU)
    qk = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(1))[:, :6]
    window = rope.rotation([Position(7), Position(1_000_000), Position(0)])
    sink = rope.rotation([Position(7), Position(40), Position(0)]) if two_phase else None
    q_window, q_sink, k = rotated(qk, 4, window, sink)
    assert (q_sink is q_window) == (sink is None)
    torch.testing.assert_close(torch.cat((q_window, k), dim=1), rotate(qk, window), atol=2e-6, rtol=2e-6)
    torch.testing.assert_close(q_sink, rotate(qk[:, :4], sink or window), atol=2e-6, rtol=2e-6)


def check_prompt(tiny: Tiny, length: int, chunk: int) -> None:
    """A prompt of several windows, in chunks that are shorter or longer than the ring."""
    shape = WindowShape(PAGE, 17, 2)
    pages = make_pages(tiny.ours, shape.quota_pages + 2, PAGE)
    rng = random.Random(chunk)
    tokens = [rng.randrange(256) for _ in range(length)]
    starts, messages = split_messages(tokens, shape.sinks, seed=chunk)
    wanted = reference_logits(
        tiny.theirs, tokens, sinks=shape.sinks, page=PAGE, ring=shape.ring_pages, message_starts=starts
    )
    session = make_session(pages, shape, tokens, messages)
    runner = EagerRunner(tiny.ours.decoder, pages, CPU, partial(by_kernel, pages))
    computed = run_all(runner, pages, [session], chunk)[session.id]
    assert max(computed) == len(tokens) - 1
    for position, logits in computed.items():
        torch.testing.assert_close(logits, wanted[position], atol=2e-4, rtol=1e-4)


def check_decoded(tiny: Tiny, before: int) -> None:
    """Two sessions decode side by side, from `before` tokens on: inside the sinks, unwrapped, and windows later."""
    shapes = [WindowShape(PAGE, 10, 4), WindowShape(PAGE, 17, 3)]
    pages = make_pages(tiny.ours, sum(s.quota_pages for s in shapes) + 2, PAGE)
    runner = EagerRunner(tiny.ours.decoder, pages, CPU, partial(by_kernel, pages))
    sessions: list[Session] = []
    wants, lasts = [], []
    for number, shape in enumerate(shapes, start=1):
        first = sum(s.quota_pages for s in shapes[: number - 1])
        rng = random.Random(before * 10 + number)
        tokens = [rng.randrange(256) for _ in range(before + 6)]
        starts, messages = split_messages(tokens, shape.sinks, seed=number)
        wants.append(
            reference_logits(
                tiny.theirs, tokens, sinks=shape.sinks, page=PAGE, ring=shape.ring_pages, message_starts=starts
            )
        )
        session = make_session(pages, shape, tokens, messages, number, first)
        lasts.append(session.pending[before:])
        del session.pending[before:]
        sessions.append(session)
    run_all(EagerRunner(tiny.ours.decoder, pages, CPU), pages, sessions, 32)
    for step in range(6):
        for session, last in zip(sessions, lasts, strict=True):
            session.pending.append(last[step])
        for computed in runner.run(schedule(sessions, 32)):
            want = wants[computed.session.id - 1][computed.session.position - 1]
            torch.testing.assert_close(computed.logits, want, atol=2e-4, rtol=1e-4)
        poison(pages, sessions)
