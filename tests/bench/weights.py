"""What weights in 8 and 4 bits cost and give, on the starter model: `python -m tests.bench.weights`.

Quality: the next token's distribution after each of about 1,000 tokens of text, against the weights as the file gives
them; read 8 tokens at a time, so that the products are those of decoding. Speed: the same answer in each form, in turn.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.engine import Engine, EngineConfig
from engine.model.decoder import Phases
from engine.model.linear import WeightForm
from engine.model.load import LoadedModel, load_model
from engine.model.rope import Rope
from engine.types import Position
from tests.bench.decode import ours
from tests.bench.report import median, report
from tests.models import starter_file

ROUNDS, TOKENS, AT_ONCE = 5, 1000, 8
TEXT = Path(__file__).parents[2] / "LICENSE"


@dataclass(frozen=True, slots=True)
class Quality:
    """KL divergence from the exact distributions, in nats, and how often the likeliest token is the same, percent."""

    kl: float
    same_top: float


@torch.inference_mode()
def read(model: LoadedModel, tokens: list[int]) -> Tensor:
    """Logits after every token `[tokens, vocab]`, by plain causal attention, `AT_ONCE` tokens at a time."""
    config, decoder = model.config, model.decoder
    ropes = [Rope(rope, config.head_dim, model.device) for rope in config.ropes]
    past: list[tuple[Tensor, Tensor] | None] = [None] * config.layers

    def attend(layer: int, q: Tensor, _q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        held = past[layer]
        keys, values = (k, v) if held is None else (torch.cat((held[0], k)), torch.cat((held[1], v)))
        past[layer] = keys, values
        seen = torch.ones(len(q), len(keys)).tril(len(keys) - len(q)).bool()
        rows = (t.transpose(0, 1)[None] for t in (q, keys, values))
        mixed = F.scaled_dot_product_attention(*rows, attn_mask=seen, enable_gqa=True)
        return mixed[0].transpose(0, 1).contiguous()

    logits = []
    for first in range(0, len(tokens), AT_ONCE):
        some = tokens[first : first + AT_ONCE]
        positions = [Position(first + i) for i in range(len(some))]
        phases = Phases(tuple(rope.rotation(positions) for rope in ropes), None)
        logits.append(decoder.logits(decoder.forward(torch.tensor(some), phases, attend)))
    return torch.cat(logits)


def quality(exact: Tensor, got: Tensor) -> Quality:
    """Compare logits `[tokens, vocab]`."""
    p, q = exact.log_softmax(-1), got.log_softmax(-1)
    same = (p.argmax(-1) == q.argmax(-1)).float().mean()
    return Quality(float((p.exp() * (p - q)).sum(-1).mean()), 100 * float(same))


def main() -> None:
    """Measure, print, report."""
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    models, seconds = {}, {}
    for form in WeightForm:
        began = time.perf_counter()
        models[form] = load_model(starter_file(), device=torch.device("cpu"), dtype=torch.float32, form=form)
        seconds[form] = time.perf_counter() - began
    tokens = models[WeightForm.FULL].tokenizer.encode_plain(TEXT.read_text(encoding="utf-8")[3000:])[:TOKENS]
    print(f"reading {len(tokens)} tokens in each form", flush=True)
    exact = read(models[WeightForm.FULL], tokens)
    found = {form: quality(exact, read(models[form], tokens)) for form in (WeightForm.INT8, WeightForm.INT4)}
    engines = {form: Engine(model, EngineConfig(quota_tokens=1024)) for form, model in models.items()}
    question = "The sea was calm and the keeper wrote down the weather. " * 12
    speeds: dict[WeightForm, list[tuple[float, float]]] = {form: [] for form in WeightForm}
    for index in range(ROUNDS + 1):
        for form, engine in engines.items():
            speed = ours(engine, question)
            if index:
                speeds[form].append(speed)
                print(f"{form}: prefill {speed[0]:.0f} decode {speed[1]:.1f}", flush=True)
    report(
        **{f"{form}_kl_millinats": 1000 * row.kl for form, row in found.items()},
        **{f"{form}_same_top_percent": row.same_top for form, row in found.items()},
        **{f"{form}_weights_mib": model.decoder.weights.bytes / 2**20 for form, model in models.items()},
        **{f"{form}_load_s": taken for form, taken in seconds.items()},
        **{f"{form}_prefill_tok_s": median([prefill for prefill, _ in rows]) for form, rows in speeds.items()},
        **{f"{form}_decode_tok_s": median([decode for _, decode in rows]) for form, rows in speeds.items()},
    )


if __name__ == "__main__":
    main()
