"""Tokens a second against transformers: same GGUF, same threads, CPU, interleaved: `python -m tests.bench.decode`."""

from __future__ import annotations

import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from transformers import AutoModelForCausalLM

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished
from engine.model.load import load_model
from engine.sampling.params import SamplingParams
from engine.types import MessageKey
from tests.bench.report import median, report
from tests.models import starter_file

ROUNDS, PROMPT_TOKENS, NEW_TOKENS = 5, 512, 48


def ours(engine: Engine, text: str) -> tuple[float, float]:
    """Prefill and decode speed of one answer, tokens a second."""
    session = engine.open_session("You are a helpful assistant.")
    engine.add_user(session, MessageKey("question"), text)
    engine.generate(session, MessageKey("answer"), SamplingParams(max_tokens=NEW_TOKENS))
    while engine.busy:
        for event in engine.step():
            if isinstance(event, AnswerFinished):
                engine.close_session(session)
                return event.prompt_tokens / event.prefill_seconds, (event.new_tokens - 1) / event.decode_seconds
    raise RuntimeError("the answer never ended")


@torch.inference_mode()
def theirs(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[float, float]:
    """The same for transformers with its own cache, greedy, no stop."""
    began = time.perf_counter()
    out = model(tokens, use_cache=True)
    first = time.perf_counter()
    token = out.logits[:, -1:].argmax(-1)
    for _ in range(NEW_TOKENS - 1):
        out = model(token, past_key_values=out.past_key_values, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
    return tokens.shape[1] / (first - began), (NEW_TOKENS - 1) / (time.perf_counter() - first)


def main() -> None:
    """Measure, print, report."""
    file = starter_file()
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    loaded = load_model(file, device=torch.device("cpu"), dtype=torch.float32)
    engine = Engine(loaded, EngineConfig(quota_tokens=1024))
    peer = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32).eval()
    text = "The sea was calm and the keeper wrote down the weather. " * (PROMPT_TOKENS // 12)
    tokens = torch.tensor([loaded.tokenizer.encode_plain(text)])
    ours(engine, text)
    theirs(peer, tokens)
    rounds = [(*ours(engine, text), *theirs(peer, tokens)) for _ in range(ROUNDS)]
    for row in rounds:
        print("prefill {:.0f} decode {:.1f} | transformers prefill {:.0f} decode {:.1f}".format(*row))
    prefill, decode, their_prefill, their_decode = (median(column) for column in zip(*rounds, strict=True))
    report(
        prefill_tok_s=prefill,
        decode_tok_s=decode,
        prefill_vs_transformers=prefill / their_prefill,
        decode_vs_transformers=decode / their_decode,
    )


if __name__ == "__main__":
    main()
