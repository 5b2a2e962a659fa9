"""transformers as the judge of a loaded model."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from transformers import PreTrainedModel

from engine.model.load import LoadedModel, load_model
from engine.runner import EagerRunner
from engine.window import WindowShape
from tests.engine.helpers import make_pages, make_session, run_all
from tests.engine.tiny import CPU

PROMPT, DECODED = 40, 64


def load(path: Path) -> LoadedModel:
    return load_model(path, device=CPU, dtype=torch.float32)


def check_against(ours: LoadedModel, theirs: PreTrainedModel) -> None:
    """Logits over a prompt read in chunks and 64 tokens that ours picks one by one."""
    rng = random.Random(3)
    tokens = [rng.randrange(250) for _ in range(PROMPT)]
    pages = make_pages(ours, 10, 16)
    session = make_session(pages, WindowShape(16, 9, 9), tokens, [("m", tokens[9:])])
    runner = EagerRunner(ours.decoder, pages, CPU)
    got = run_all(runner, pages, [session], 13)[session.id]
    while len(tokens) < PROMPT + DECODED:
        tokens.append(int(got[len(tokens) - 1].argmax()))
        session.pending.append(tokens[-1])
        got |= run_all(runner, pages, [session], 13)[session.id]
    with torch.no_grad():
        want = theirs(torch.tensor([tokens])).logits[0]
    assert sorted(got)[-DECODED - 1 :] == list(range(PROMPT - 1, PROMPT + DECODED))
    assert float(want.std()) > 0.1
    for t, logits in got.items():
        torch.testing.assert_close(logits, want[t], atol=1e-4, rtol=1e-4, msg=lambda m, t=t: f"at {t}: {m}")
