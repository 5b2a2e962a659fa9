"""The starter model's greedy text on the GPU against that on the CPU, both in float32, pages too."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.cache.formats.kv_format import KvFormat
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import AnswerFinished
from engine.model.load import load_model
from engine.sampling.params import SamplingParams
from engine.types import MessageKey

PROMPTS = (
    "Why is the sea salt?",
    "Write a short story about a keeper of a lighthouse who counts ships.",
    "List the planets of the solar system, one a line.",
)
WINDOW = 192


def answers(file: Path, device: torch.device, new: int) -> list[str]:
    """One chat that asks all of it, through a window that slides on the way."""
    model = load_model(file, device=device, dtype=torch.float32)
    engine = Engine(model, EngineConfig(quota_tokens=WINDOW, kv_format=KvFormat.FULL))
    chat = engine.open_session("You are a helpful assistant.")
    texts = []
    for index, prompt in enumerate(PROMPTS):
        engine.add_user(chat, MessageKey(f"q{index}"), prompt)
        params = SamplingParams(temperature=0, max_tokens=new, end_loops=False)
        engine.generate(chat, MessageKey(f"a{index}"), params)
        while engine.busy:
            texts += [event.text for event in engine.step() if isinstance(event, AnswerFinished)]
    return texts


def greedy_text(file: Path, device: torch.device, new: int) -> dict[str, float]:
    """The share of the answers that are the same. Raises AssertionError, with both, unless all are."""
    there, here = answers(file, device, new), answers(file, torch.device("cpu"), new)
    for ours, wanted in zip(there, here, strict=True):
        assert ours == wanted, f"on {device} the starter model writes {ours!r}, on the CPU {wanted!r}"
    return {"greedy_answers_equal": len(here)}
