"""Our speed on a CPU against llama.cpp and transformers: `python -m tests.bench.cpu`.

The same GGUF file, the same threads (THREADS, 2), the same tokens; the three take turns in each of ROUNDS (5) rounds,
and a figure is the median of its rounds' ratios, so that what else the machine does hits all alike. llama.cpp is run by
the Python that AIOS_LLAMA_PYTHON names, which has llama-cpp-python installed; without it its lines are left out.

Ours is measured through the engine, with its sampling and its text; the peers' forward passes alone. Transformers runs
in float32, which is faster than bfloat16 where a CPU has no instructions for that.

full_window_ttft: the time to the first token of the next turn of a chat that is longer than its window of 1,024 tokens.
llama.cpp is used as people use it there: the oldest messages are dropped and the rest is read again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from transformers import AutoModelForCausalLM

from engine.engine import Engine, EngineConfig
from engine.events import AnswerFinished
from engine.model.load import load_model
from engine.sampling.params import SamplingParams
from engine.types import MessageKey, SessionId
from kernels.cpu.ready import wait_compiled
from tests.bench.report import median, report
from tests.models import starter_file

ROUNDS, THREADS = int(os.environ.get("ROUNDS", "5")), int(os.environ.get("THREADS", "2"))
LONG, SHORT, NEW, WINDOW, ROOM = 1024, 32, 32, 1024, 128
SENTENCE = "On day {} of the voyage the keeper of the light wrote down {} ships and a wind from the south. "
QUESTION = "And what did the keeper write on the day after that one?"


@dataclass(slots=True)
class Times:
    """Seconds, one a round."""

    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    short: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)


class Ours:
    """The engine, in two windows: one that nothing leaves, one that is full."""

    def __init__(self, file: Path) -> None:
        if not wait_compiled(600):
            sys.exit("the CPU kernels could not be compiled")
        self.model = load_model(file, device=torch.device("cpu"), dtype=torch.float32, form=None)
        self._wide = Engine(self.model, EngineConfig(quota_tokens=2 * LONG))
        self._full = Engine(self.model, EngineConfig(quota_tokens=WINDOW))
        self._chat = self._full.open_session("You are a helpful assistant.")
        self._turns = 0
        while self._full.window(self._chat).evicted < WINDOW // 2:
            self.next_turn(text_of(self._turns, 6), 8)

    def answer(self, text: str, new: int) -> tuple[float, float, int]:
        """Seconds to the first token and for `new` more, and how many tokens were read, in a new chat."""
        session = self._wide.open_session("You are a helpful assistant.")
        done = turn(self._wide, session, "1", text, new + 1)
        self._wide.close_session(session)
        return done.prefill_seconds, done.decode_seconds * new / (done.new_tokens - 1), done.prompt_tokens

    def next_turn(self, text: str, new: int) -> float:
        """Seconds to the first token of one more turn of the chat that is longer than its window."""
        self._turns += 1
        return turn(self._full, self._chat, str(self._turns), text, new).prefill_seconds


def turn(engine: Engine, session: SessionId, name: str, text: str, new: int) -> AnswerFinished:
    """One question and its answer, greedy; loops and stops of the small model's own are taken as they come."""
    engine.add_user(session, MessageKey(f"q{name}"), text)
    engine.generate(session, MessageKey(f"a{name}"), SamplingParams(temperature=0, max_tokens=new, end_loops=False))
    while engine.busy:
        for event in engine.step():
            if isinstance(event, AnswerFinished):
                return event
    raise RuntimeError("the answer never ended")


class LlamaCpp:
    """llama.cpp in a process of its own."""

    def __init__(self, python: str, file: Path) -> None:
        command = [python, str(Path(__file__).with_name("llamacpp.py")), str(file), str(THREADS), str(2 * LONG)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, **pipes)
        self._read()

    def read(self, tokens: list[int], new: int) -> tuple[float, float]:
        """Seconds to read the tokens, and for `new` more."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"tokens": tokens, "new": new}) + "\n")
        self._process.stdin.flush()
        prefill, decode = self._read()
        return prefill, decode

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("AIOS_LLAMA_PYTHON did not run llama-cpp-python; run tests/bench/llamacpp.py with it to see why")
        return json.loads(line)


@torch.inference_mode()
def transformers_decode(model: torch.nn.Module, tokens: list[int]) -> float:
    """Seconds for `NEW` tokens after `tokens`, with its own cache."""
    out = model(torch.tensor([tokens]), use_cache=True)
    began = time.perf_counter()
    for index in range(NEW):
        out = model(torch.tensor([[100 + index]]), past_key_values=out.past_key_values, use_cache=True)
    return time.perf_counter() - began


def text_of(seed: int, sentences: int) -> str:
    """Text that no other seed has, so that no page of it is known from before."""
    return "".join(SENTENCE.format(1000 * seed + i, (seed + i) % 7) for i in range(sentences))


def our_round(ours: Ours, seed: int, times: Times) -> tuple[list[int], list[int]]:
    """One round of ours; the tokens of the long and of the short prompt, for the peers."""
    prompts = []
    for length, decode in ((LONG, times.decode), (SHORT, times.short)):
        sentences = length // len(ours.model.tokenizer.encode_plain(text_of(seed, 1)))
        text = text_of(seed, max(1, sentences))
        read, more, tokens = ours.answer(text, NEW)
        decode.append(more)
        prompts.append((ours.model.tokenizer.encode_plain(text) * 2)[:tokens])
        if length == LONG:
            times.prefill.append(read)
    times.full.append(ours.next_turn(QUESTION, 8))
    return prompts[0], prompts[1]


def main() -> None:
    """Measure, print, report."""
    torch.set_num_threads(THREADS)
    file = starter_file()
    python = os.environ.get("AIOS_LLAMA_PYTHON")
    ours, llama = Ours(file), None if python is None else LlamaCpp(python, file)
    if llama is None:
        print("AIOS_LLAMA_PYTHON is not set: nothing is measured against llama.cpp")
    peer = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32).eval()
    mine, theirs, other = Times(), Times(), Times()
    counts = (0, 0)
    for seed in range(ROUNDS + 1):
        rows = (Times(), Times(), Times()) if seed == 0 else (mine, theirs, other)
        long, short = our_round(ours, seed + 1, rows[0])
        counts = len(long), len(short)
        if llama is not None:
            for times, tokens in ((rows[1].decode, long), (rows[1].short, short)):
                read, more = llama.read(tokens, NEW)
                times.append(more)
                if tokens is long:
                    rows[1].prefill.append(read)
            rows[1].full.append(llama.read(long[: WINDOW - ROOM], 1)[0])
        rows[2].decode.append(transformers_decode(peer, long))
        print(f"round {seed}: " + "; ".join(line(times, counts[0]) for times in rows if times.decode), flush=True)
    figures = {"decode_tok_s": NEW / median(mine.decode), "prefill_tok_s": counts[0] / median(mine.prefill)}
    figures |= {"decode_short_tok_s": NEW / median(mine.short), "full_window_ttft_ms": 1000 * median(mine.full)}
    if llama is not None:
        figures["decode_1024_vs_llamacpp"] = ratio(theirs.decode, mine.decode)
        figures["decode_short_vs_llamacpp"] = ratio(theirs.short, mine.short)
        figures["prefill_vs_llamacpp"] = ratio(theirs.prefill, mine.prefill)
        figures["full_window_ttft_vs_llamacpp"] = ratio(theirs.full, mine.full)
    report(**figures, decode_vs_transformers=ratio(other.decode, mine.decode))


def line(times: Times, tokens: int) -> str:
    """The newest round in tokens a second."""
    shown = [f"decode {NEW / times.decode[-1]:.1f}"]
    if times.short:
        shown += [f"short {NEW / times.short[-1]:.1f}", f"prefill {tokens / times.prefill[-1]:.0f}"]
        shown += [f"next turn {1000 * times.full[-1]:.0f} ms"]
    return " ".join(shown)


def ratio(theirs: list[float], ours: list[float]) -> float:
    """How many times as fast ours is: the median over rounds."""
    return median([other / own for other, own in zip(theirs, ours, strict=True)])


if __name__ == "__main__":
    main()
