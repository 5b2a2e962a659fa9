"""Our side: the engine as the program makes it on a CPU, with its sampling and its text."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from engine.engine import Engine, EngineConfig
from engine.events import AnswerFinished, PromptRead
from engine.model.load import LoadedModel, load_model
from engine.sampling.params import SamplingParams
from engine.types import MessageKey, SessionId
from kernels.cpu.ready import wait_compiled
from tests.bench.cpu.setting import PAGE, SYSTEM, THREADS, WINDOW

HOST_BYTES = 256 << 20
"""The program's default."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds from asking to the first token, tokens computed until then, seconds for the tokens after it and their
    number."""

    first: float
    tokens: int
    more: float
    new: int


@cache
def model_of(file: Path) -> LoadedModel:
    """The model in its default form, its kernels compiled. No token ends an answer: each is as long as asked for."""
    torch.set_num_threads(THREADS)
    if not wait_compiled(600):
        sys.exit("the CPU kernels could not be compiled")
    return replace(load_model(file, device=torch.device("cpu"), dtype=torch.float32, form=None), stop_ids=frozenset())


def engine_of(file: Path, quota: int = WINDOW, sessions: int = 2) -> Engine:
    """An engine with the program's own page size and host tier, without guesses: every token is one step."""
    config = EngineConfig(quota_tokens=quota, page_size=PAGE, sessions=sessions, host_bytes=HOST_BYTES)
    return Engine(model_of(file), config)


def open_chat(engine: Engine) -> SessionId:
    """A chat with the system prompt."""
    return engine.open_session(SYSTEM)


def answer(engine: Engine, session: SessionId, name: str, new: int, began: float | None = None) -> Turn:
    """The answer `name`, greedy, `new` tokens long; its first token counts from `began`, by default from now."""
    began = time.perf_counter() if began is None else began
    first = began
    engine.generate(session, MessageKey(name), SamplingParams(temperature=0, max_tokens=new, end_loops=False))
    while engine.busy:
        for event in engine.step():
            if isinstance(event, PromptRead) and event.done == event.total:
                first = time.perf_counter()
            if isinstance(event, AnswerFinished):
                return Turn(first - began, event.prompt_tokens, event.decode_seconds, event.new_tokens - 1)
    raise RuntimeError("the answer never ended")


def turn(engine: Engine, session: SessionId, name: str, text: str, new: int) -> Turn:
    """A question and its answer."""
    began = time.perf_counter()
    engine.add_user(session, MessageKey(f"q{name}"), text)
    return answer(engine, session, f"a{name}", new, began)


def feed(engine: Engine, session: SessionId, name: str, question: str, reply: str) -> None:
    """A turn that was had earlier, read without an answer."""
    engine.add_user(session, MessageKey(f"q{name}"), question)
    engine.add_answer(session, MessageKey(f"a{name}"), reply)
    engine.read(session)
    while engine.busy:
        engine.step()
