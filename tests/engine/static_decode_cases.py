"""Decoding from inputs at fixed places, as a CUDA graph replays it. Run under the interpreter by test_by_kernel.py."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engine.cache.formats.kv_format import KvFormat
from engine.cache.pages import Pages
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished, TokensEvicted
from engine.model.linear import WeightForm
from engine.model.load import LoadedModel, load_model
from engine.policy import Policy
from engine.runner import Computed, EagerRunner
from engine.runner_graph import GraphRunner, StaticDecode, Step
from engine.sampling.params import SamplingParams
from engine.scheduler import Schedule
from engine.session import Session
from engine.types import MessageKey, Position, SessionId
from engine.window import WindowShape
from tests.engine.family_models import make_model, write_model
from tests.engine.helpers import make_pages, make_session, run_all, split_messages
from tests.engine.test_machine import EngineMachine
from tests.engine.tiny import CPU, Tiny, write_llama

PAGE = 16
pytestmark = pytest.mark.timeout(900)
GARBAGE = (0x7B, 0xFF)
"""Bytes that make 1.3e36 and 8e18, or NaN and -1."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Fewer launches than the usual one; the interpreter takes a millisecond for each."""
    folder = tmp_path_factory.mktemp("small")
    theirs = write_llama(folder, num_hidden_layers=2)
    return Tiny(folder, theirs, load_model(folder, device=CPU, dtype=torch.float32))


def refuse(_step: Step) -> Step:
    raise RuntimeError("operation not permitted when stream is capturing\nand more lines")


def static_runner(model: LoadedModel, pages: Pages, config: EngineConfig) -> GraphRunner:
    """As `runner_for` makes it on a GPU whose capture fails."""
    sizes = {"sessions": config.sessions, "table_len": config.quota_pages}
    return GraphRunner(EagerRunner(model.decoder, pages, CPU), model.decoder, pages, **sizes, capture=refuse)


class Launches(TorchDispatchMode):
    """Every operation of torch with the shapes and strides of what it takes and gives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Any]]] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = op(*args, **(kwargs or {}))
        tensors = [t for t in (*args, result) if isinstance(t, Tensor)]
        self.seen.append((str(op), [(t.shape, t.stride(), t.dtype) for t in tensors]))
        return result


@pytest.fixture
def rows() -> Iterator[list[tuple[int, int]]]:
    """(chats, rows) of every static step. Before each, garbage lies where its inputs are written, and each launches
    what the first one of so many rows launched."""
    steps: list[tuple[int, int]] = []
    traces: dict[StaticDecode, list[tuple[str, list[Any]]]] = {}
    write, step = StaticDecode.write, StaticDecode.step

    def over_garbage(static: StaticDecode, sessions: list[Session], starts: list[Position]) -> None:
        for memory in (static.staging._host, static.staging._device):
            memory.fill_(GARBAGE[len(steps) % 2])
        write(static, sessions, starts)
        steps.append((len(sessions), len(static._tokens.host)))

    def traced(static: StaticDecode) -> Tensor:
        with Launches() as launches:
            logits = step(static)
        assert traces.setdefault(static, launches.seen) == launches.seen
        return logits

    with (
        patch.multiple(StaticDecode, write=over_garbage, step=traced),
        patch("engine.engine.runner_for", static_runner),
    ):
        yield steps


class Recorded:
    """A runner, and the logits it gave for each token of each session, in order."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.logits: list[tuple[SessionId, Position, Tensor]] = []

    def run(self, schedule: Schedule) -> list[Computed]:
        computed = self.runner.run(schedule)
        self.logits += [(c.session.id, c.session.position, c.logits.clone()) for c in computed]
        return computed


@pytest.mark.slow
def test_a_random_history_equals_the_eager_one(small: Tiny, rows: list[tuple[int, int]]) -> None:
    """Chats come, answer, are forked, rewound, swapped out and closed, up to five at once, through several windows."""
    model = replace(small.ours, stop_ids=frozenset())
    config = EngineConfig(64, PAGE, sessions=5, chunk_tokens=32, host_bytes=300_000, kv_format=KvFormat.FULL)
    engines = Engine(model, config), Engine(model, config)
    engines[0]._runner = EagerRunner(model.decoder, engines[0].pages, CPU)
    for engine in engines:
        engine.pages.k.fill_(float("nan"))
        engine.pages.v.fill_(float("nan"))
        engine._runner = Recorded(engine._runner)
    both = [live_through(engine, random.Random(3)) for engine in engines]
    assert both[0] == both[1]
    assert any(isinstance(event, TokensEvicted) for event in both[0])
    given, wanted = (engine._runner.logits for engine in reversed(engines))
    assert [at[:2] for at in given] == [at[:2] for at in wanted]
    for (*at, ours), (*_, theirs) in zip(given, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4, msg=lambda text, at=at: f"{at}: {text}")
    assert {size for _, size in rows} == {1, 2, 4, 5}
    assert any(chats == 3 for chats, _ in rows)


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("one")
    write_llama(folder, num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=1)
    return load_model(folder, device=CPU, dtype=torch.float32)


def test_packed_pages_equal_the_eager_ones(one_layer: LoadedModel, rows: list[tuple[int, int]]) -> None:
    """Three chats whose pages fill while they answer, are packed, and are recycled."""
    model = replace(one_layer, stop_ids=frozenset())
    config = EngineConfig(64, PAGE, sessions=4, kv_format=KvFormat.K8V4)
    both = []
    for runner in (static_runner, lambda model, pages, _config: EagerRunner(model.decoder, pages, CPU)):
        engine = Engine(model, config)
        engine._runner = Recorded(runner(model, engine.pages, config))
        for number in range(3):
            chat = engine.open_session("s")
            engine.add_user(chat, MessageKey("q"), "word " * number)
            engine.generate(chat, MessageKey("a"), SamplingParams(max_tokens=24, end_loops=False))
        while engine.busy:
            engine.step()
        both.append(engine._runner.logits)
        assert any(engine.window(session).evicted for session in engine._chats)
    for (*at, ours), (*there, theirs) in zip(*both, strict=True):
        assert at == there
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)
    assert (3, 4) in rows


def live_through(engine: Engine, rng: random.Random) -> list[Any]:
    """The same calls for the same `rng`; returns what the engine told."""
    told: list[Any] = []
    chats: list[SessionId] = []
    for turn in range(4):
        while len(chats) < min(5, 1 + 2 * turn):
            if chats and rng.random() < 0.5:
                parent = rng.choice(chats)
                said = [span.key for span in engine._chats[parent].session.messages]
                chats.append(engine.fork(parent, rng.choice([None, *said])))
            else:
                chats.append(engine.open_session("s" * rng.randrange(9)))
        for chat in chats if turn == 3 else rng.sample(chats, rng.randrange(1, len(chats) + 1)):
            params = SamplingParams(max_tokens=14 if turn == 3 else rng.randrange(1, 9), seed=turn)
            engine.add_user(chat, MessageKey(f"q{turn}"), "word " * rng.randrange(3))
            engine.generate(chat, MessageKey(f"a{turn}"), params)
        while engine.busy:
            told += engine.step()
            engine.check()
        chat = rng.choice(chats)
        rng.choice([partial(engine.rewind, chat, None), partial(engine.swap_out, chat), lambda: None])()
        if rng.random() < 0.3:
            engine.close_session(chats.pop(rng.randrange(len(chats))))
    no_time = {"prefill_seconds": 0, "decode_seconds": 0}
    return [replace(event, **no_time) if isinstance(event, AnswerFinished) else event for event in told]


@pytest.mark.slow
def test_any_order_of_calls(small: Tiny, rows: list[tuple[int, int]]) -> None:
    """The engine's own state machine, which holds every token to the dense reference and poisons what nobody sees."""
    quota = {"quota_tokens": 64, "page_size": PAGE, "chunk_tokens": 100, "host_bytes": 200_000}
    configs = [
        EngineConfig(**quota, sessions=3, policy=policy, kv_format=KvFormat.FULL)
        for policy in (Policy.ROUND_ROBIN, Policy.TRUNCATE, Policy.RECOMPUTE)
    ]
    configs += [EngineConfig(**quota, sessions=3, kv_format=name) for name in (KvFormat.INT8, KvFormat.TQ3)]
    run_state_machine_as_test(
        partial(EngineMachine, small, configs),
        settings=settings(
            max_examples=5, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_capture_that_fails_is_told_once(
    small: Tiny, rows: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(small.ours, EngineConfig(quota_tokens=64, page_size=PAGE, sessions=2, kv_format=KvFormat.FULL))
    for count in (1, 2):
        chats = [engine.open_session("s") for _ in range(count)]
        for chat in chats:
            engine.add_user(chat, MessageKey("q"), "a")
            engine.generate(chat, MessageKey("a"), SamplingParams(max_tokens=6))
        while engine.busy:
            engine.step()
        for chat in chats:
            engine.close_session(chat)
    assert {size for _, size in rows} == {1, 2}
    (told,) = [record.getMessage() for record in caplog.records if record.name == "engine.runner_graph"]
    assert told == (
        "decoding goes on without CUDA graphs, which is slower: operation not permitted when stream is capturing"
    )


@pytest.fixture(scope="module")
def local_and_global(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("gemma2")
    write_model(folder, make_model("gemma2", head_dim=16, sliding_window=50, num_hidden_layers=2))
    return load_model(folder, device=CPU, dtype=torch.float32)


@pytest.fixture(scope="module")
def low_bit(small: Tiny) -> LoadedModel:
    return load_model(small.folder, device=CPU, dtype=torch.float32, form=WeightForm.INT4)


@pytest.mark.parametrize("name", ["tiny", "local_and_global", "low_bit"])
def test_what_is_launched_does_not_depend_on_what_is_written(request: pytest.FixtureRequest, name: str) -> None:
    """One chat inside its sinks; three, two of them windows later; and none: the same operations on the same shapes,
    none of which reads a value on the host or makes a shape of one."""
    given = request.getfixturevalue(name)
    model: LoadedModel = given.ours if isinstance(given, Tiny) else given
    shape = WindowShape(PAGE, 17, 3)
    pages, sessions, lasts = make_pages(model, 3 * shape.quota_pages, PAGE), [], []
    for number, length in enumerate((6, 200, 131)):
        tokens = [random.Random(number).randrange(256) for _ in range(length)]
        _, messages = split_messages(tokens, shape.sinks, seed=number)
        session = make_session(pages, shape, tokens, messages, number + 1, number * shape.quota_pages)
        lasts.append(session.pending.pop())
        sessions.append(session)
    run_all(EagerRunner(model.decoder, pages, CPU), pages, sessions, 64)
    for session, last in zip(sessions, lasts, strict=True):
        session.pending.append(last)
    static = StaticDecode(model.decoder, pages, 4, shape.quota_pages)
    places = [staged.device.data_ptr() for staged in static.staging.fields]
    traces = []
    for some in (sessions[:1], sessions, []):
        starts = [session.starts(session.position, Position(session.position + 1))[0] for session in some]
        static.write(some, starts)
        before = pages.k.clone(), pages.v.clone()
        with torch.inference_mode(), Launches() as launches:
            logits = static.step()
        assert logits.shape == (4, model.config.vocab)
        assert logits.isfinite().all()
        written = [session.slot(session.position) for session in some]
        for memory, held in zip((pages.k, pages.v), before, strict=True):
            changed = (memory.view(torch.int32) != held.view(torch.int32)).any(dim=(0, 1, 4)).flatten()
            assert set(changed.nonzero().flatten().tolist()) <= set(written)
        traces.append(launches.seen)
    assert traces[0] == traces[1] == traces[2]
    assert places == [staged.device.data_ptr() for staged in static.staging.fields]
    reading = ("_local_scalar_dense", "nonzero", "item", "masked_select", "unique", "bincount")
    assert not [op for op, _ in traces[0] if any(word in op for word in reading)]
