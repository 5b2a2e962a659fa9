"""A step's few tokens by the fused kernel: equal to the dense reference on the weights that are held, from the first
token to several windows later, for one chat, several, and guesses."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.cache.pages import Pages
from engine.fused import fused_layers
from engine.model.linear import Linear, WeightForm
from engine.model.load import LoadedModel, load_model
from engine.model.mlp import GatedMlp
from engine.model.weights.quantised import PackedLinear
from engine.runner import EagerRunner
from engine.scheduler import Prefill, Schedule
from engine.types import Position
from engine.window import WindowShape
from kernels.cpu.decode_attention import PIECE
from kernels.cpu.decode_layers import MOST_TOKENS
from kernels.cpu.packed_weights import unpack
from kernels.cpu.page_rows import PAGE_TYPES
from kernels.cpu.ready import wait_compiled
from tests.engine.family_models import LLAMA3, MOE, make_model, write_model
from tests.engine.helpers import make_pages, make_session, poison, run_all, run_and_read, split_messages
from tests.engine.reference import Halved, reference_logits
from tests.engine.tiny import CPU

PAGE, SINKS, RING = 8, 11, 4
SHAPE = {"hidden_size": 128, "intermediate_size": 160, "vocab_size": 272, "num_attention_heads": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "biases": ("qwen2", {"tie_word_embeddings": True}),
    "head norms": ("qwen3", {"head_dim": 64, "tie_word_embeddings": True, "num_attention_heads": 6}),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "norms after": ("olmo2", {}),
    "scaled residuals": ("granite", {"residual_multiplier": 0.4}),
    "native windows": ("mistral", {"sliding_window": 20}),
    "experts": ("qwen3_moe", MOE | {"head_dim": 32}),
    "biased products": ("llama", {"mlp_bias": True}),
    "heads of 16": ("llama", {"head_dim": 16}),
    "not whole groups": ("llama", {"hidden_size": 48, "head_dim": 32}),
}


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    assert wait_compiled(280)


@cache
def the_model(folder: Path, name: str, form: WeightForm) -> tuple[LoadedModel, PreTrainedModel]:
    """A model packed, and transformers' with the values that are held."""
    family, changes = (MODELS | OTHERS)[name]
    theirs = make_model(family, **(SHAPE | changes))
    write_model(folder, theirs)
    ours = load_model(folder, device=CPU, dtype=torch.float32, form=form)
    if name in MODELS:
        with torch.no_grad():
            take_over(ours, theirs)
    return ours, theirs


def take_over(ours: LoadedModel, theirs: PreTrainedModel) -> None:
    config = ours.config
    theirs.model.embed_tokens.weight.copy_(values(ours.decoder.weights.embedding))
    for layer, other in zip(ours.decoder.weights.layers, theirs.model.layers, strict=True):
        assert isinstance(layer.mlp, GatedMlp)
        attention, mlp = other.self_attn, other.mlp
        rows = torch.split(values(layer.qkv), [config.q_width, config.kv_width, config.kv_width])
        for part, some in zip((attention.q_proj, attention.k_proj, attention.v_proj), rows, strict=True):
            part.weight.copy_(some)
        attention.o_proj.weight.copy_(values(layer.out))
        for part, some in zip((mlp.gate_proj, mlp.up_proj), values(layer.mlp.gate_up).chunk(2), strict=True):
            part.weight.copy_(some)
        mlp.down_proj.weight.copy_(values(layer.mlp.down))


def values(linear: Linear) -> Tensor:
    assert isinstance(linear, PackedLinear)
    return unpack(linear.weight)


def history(seed: int, length: int = SINKS + 4 * RING * PAGE + 3) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(256) for _ in range(length)]


def wanted(theirs: PreTrainedModel, tokens: list[int], starts: list[int], halved: Halved | None = None) -> Tensor:
    return reference_logits(theirs, tokens, sinks=SINKS, page=PAGE, ring=RING, message_starts=starts, packing=halved)


def same(got: Tensor, want: Tensor) -> None:
    # Half of 16 bits' last digit, through three layers of a model whose weights are 0.15 wide.
    torch.testing.assert_close(got, want, atol=8e-3, rtol=1e-3)


def fused_only(model: LoadedModel, pages: Pages) -> EagerRunner:
    """A runner that fails where the fused kernel is not taken."""

    def refuse(*_: object) -> Any:
        raise AssertionError("the eager layers were run")

    runner = EagerRunner(model.decoder, pages, CPU)
    runner._attention = refuse  # type: ignore[method-assign]
    return runner


@pytest.mark.parametrize("form", [WeightForm.INT8, WeightForm.INT4])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_two_chats_at_every_position(
    tmp_path_factory: pytest.TempPathFactory, name: str, threads: int, form: WeightForm
) -> None:
    torch.set_num_threads(threads)
    model, theirs = the_model(tmp_path_factory.getbasetemp() / f"{name}-{form}", name, form)
    shape = WindowShape(PAGE, SINKS, RING)
    pages = make_pages(model, 2 * shape.quota_pages + 1, PAGE)
    sessions, wants = [], {}
    for number in (1, 2):
        tokens = history(number, SINKS + (2 + number) * RING * PAGE + 3)
        starts, messages = split_messages(tokens, SINKS, seed=number)
        first_page = (number - 1) * shape.quota_pages
        sessions.append(make_session(pages, shape, tokens, messages, number, first_page))
        wants[number] = wanted(theirs, tokens, starts)
    got = run_all(fused_only(model, pages), pages, sessions, 1)
    torch.set_num_threads(1)
    for number, want in wants.items():
        assert sorted(got[number]) == list(range(len(want)))
        same(torch.stack([got[number][t] for t in range(len(want))]), want)


@pytest.mark.parametrize("chunk", [3, 7])
def test_chunks_are_fused_where_none_is_written_over_what_another_sees(
    tmp_path_factory: pytest.TempPathFactory, chunk: int
) -> None:
    model, theirs = the_model(tmp_path_factory.getbasetemp() / "llama-int4", "llama", WeightForm.INT4)
    shape, tokens = WindowShape(PAGE, SINKS, RING), history(5)
    starts, messages = split_messages(tokens, SINKS, seed=3)
    pages = make_pages(model, shape.quota_pages, PAGE)
    got = run_all(EagerRunner(model.decoder, pages, CPU), pages, [make_session(pages, shape, tokens, messages)], chunk)[
        1
    ]
    want = wanted(theirs, tokens, starts)
    for t, logits in got.items():
        same(logits, want[t])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [MOST_TOKENS + 1, 40])
def test_longer_chunks_are_fused_whatever_they_are_written_over(
    tmp_path_factory: pytest.TempPathFactory, name: str, chunk: int
) -> None:
    torch.set_num_threads(2)
    model, theirs = the_model(tmp_path_factory.getbasetemp() / f"{name}-int4", name, WeightForm.INT4)
    shape, tokens = WindowShape(PAGE, SINKS, RING), history(8)
    starts, messages = split_messages(tokens, SINKS, seed=6)
    pages = make_pages(model, shape.quota_pages, PAGE)
    session = make_session(pages, shape, tokens, messages)
    got = run_all(fused_only(model, pages), pages, [session], chunk)[1]
    torch.set_num_threads(1)
    want = wanted(theirs, tokens, starts)
    for t, logits in got.items():
        same(logits, want[t])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [1, MOST_TOKENS + 1, 40])
def test_pages_in_float16(tmp_path_factory: pytest.TempPathFactory, name: str, chunk: int) -> None:
    model, theirs = the_model(tmp_path_factory.getbasetemp() / f"{name}-int4", name, WeightForm.INT4)
    shape, tokens = WindowShape(PAGE, SINKS, RING), history(8)
    starts, messages = split_messages(tokens, SINKS, seed=6)
    pages = make_pages(model, shape.quota_pages, PAGE, torch.float16)
    session = make_session(pages, shape, tokens, messages)
    got, held = run_and_read(fused_only(model, pages), pages, session, chunk)
    want = wanted(theirs, tokens, starts, Halved(held, close=8e-3))
    for t, logits in got.items():
        same(logits, want[t])


@pytest.mark.parametrize("dtype", PAGE_TYPES)
def test_wherever_a_prompt_is_cut_the_same_bits_come_out(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype
) -> None:
    """Its tokens attend to each other before they are stored, and to those of the chunk before afterwards."""
    model, _ = the_model(tmp_path_factory.getbasetemp() / "llama-int4", "llama", WeightForm.INT4)
    shape, tokens = WindowShape(PAGE, 0, 3 * RING), history(9, 80)
    found = []
    for chunk in (80, 40, 16):
        pages = make_pages(model, shape.quota_pages, PAGE, dtype)
        session = make_session(pages, shape, tokens, [("m", tokens)])
        logits = run_all(fused_only(model, pages), pages, [session], chunk)[1][79]
        found.append((logits, pages.k.nan_to_num(7.0), pages.v.nan_to_num(7.0)))
    for some in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(some, found[0], strict=True))


def test_guesses_are_computed_with_the_token_that_is_known(tmp_path_factory: pytest.TempPathFactory) -> None:
    model, theirs = the_model(tmp_path_factory.getbasetemp() / "llama-int4", "llama", WeightForm.INT4)
    shape, tokens = WindowShape(PAGE, SINKS, RING), history(6)
    starts, messages = split_messages(tokens, SINKS, seed=4)
    pages, want = make_pages(model, shape.quota_pages, PAGE), wanted(theirs, tokens, starts)
    session, runner = make_session(pages, shape, tokens, messages), fused_only(model, pages)
    while session.pending:
        t = session.position
        guess = tuple(session.pending[1 : max(1, PAGE - 1 - shape.offset(t))]) if t >= SINKS else ()
        (computed,) = runner.run(Schedule([], Prefill(session, 1, guess)))
        same(computed.logits, want[t])
        if computed.ahead is not None:
            same(computed.ahead.logits, want[t + 1 : t + 1 + len(guess)])
        poison(pages, [session])


def test_runs_of_slots_longer_than_a_piece(tmp_path_factory: pytest.TempPathFactory) -> None:
    model, theirs = the_model(tmp_path_factory.getbasetemp() / "llama-int4", "llama", WeightForm.INT4)
    sinks, ring = PIECE + 11, 2 * PIECE // PAGE + 3
    shape, tokens = WindowShape(PAGE, sinks, ring), history(7, sinks + ring * PAGE + PIECE + 5)
    starts, messages = split_messages(tokens, sinks, seed=5)
    pages = make_pages(model, shape.quota_pages, PAGE)
    session = make_session(pages, shape, tokens, messages)
    session.table.sort()
    longest = max(r.end - r.first for r in session.slot_ranges(Position(sinks), Position(sinks + ring * PAGE)))
    assert longest > 2 * PIECE
    got = run_all(fused_only(model, pages), pages, [session], 1)[1]
    want = reference_logits(theirs, tokens, sinks=sinks, page=PAGE, ring=ring, message_starts=starts)
    same(torch.stack([got[t] for t in range(len(want))]), want)


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_run_as_before(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    model, _ = the_model(tmp_path_factory.getbasetemp() / name, name, WeightForm.INT4)
    shape, tokens = WindowShape(PAGE, SINKS, RING), history(1, 40)
    _, messages = split_messages(tokens, SINKS, seed=1)
    got = []
    for chunk in (64, 1):
        pages = make_pages(model, shape.quota_pages, PAGE)
        assert fused_layers(model.decoder, pages) is None
        session = make_session(pages, shape, tokens, messages)
        got.append(run_all(EagerRunner(model.decoder, pages, CPU), pages, [session], chunk)[1][len(tokens) - 1])
    torch.testing.assert_close(got[1], got[0], atol=2e-2, rtol=2e-2)
