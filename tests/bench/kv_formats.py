"""What each page format costs and saves, on the starter model: `python -m tests.bench.kv_formats`.

A long text is read by the engine in a window of 1,000 tokens, once with all pages as computed and once in each format,
and the next token's distributions are compared: KL divergence in millinats, and how often the most likely token is
the same. Writes docs/kv-formats.md.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat
from engine.cache.kv_cache import KvCache
from engine.cache.packed import SINK_TOKENS, pages_for
from engine.model.config import ModelConfig
from engine.model.decoder import Attend, Decoder, DecoderWeights, Phases
from engine.model.load import load_model
from engine.runner import EagerRunner
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, SessionId
from engine.window import WindowShape
from tests.bench.report import report
from tests.models import starter_file

ROOT = Path(__file__).parents[2]
TEXT, TABLE = ROOT / "tests/cases/long_text.txt", ROOT / "docs/kv-formats.md"
SHAPE, CHUNK, DECODED = WindowShape(page_size=32, sinks=40, ring_pages=30), 128, 24
MEGABYTES = 100


class ReadingDecoder(Decoder):
    """Keeps the logits after every token, where the engine asks for those after the last."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        super().__init__(config, weights)
        self.read: list[Tensor] = []

    def forward(self, tokens: Tensor, phases: Phases, attend: Attend) -> Tensor:
        """As the decoder; keeps `[tokens, vocab]`."""
        hidden = super().forward(tokens, phases, attend)
        self.read.append(self.logits(hidden))
        return hidden


def read(decoder: Decoder, tokens: list[int], name: KvFormat) -> tuple[Tensor, float]:
    """Logits after every token, `[tokens, vocab]`, and the seconds that one more token takes behind them."""
    config, reading = decoder.config, ReadingDecoder(decoder.config, decoder.weights)
    pages = pages_for(
        name,
        config,
        sessions=1,
        quota_pages=SHAPE.quota_pages,
        page_size=SHAPE.page_size,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    cache = KvCache(config.name, pages, sessions=1, quota_pages=SHAPE.quota_pages, host_images=0)
    runner, session = EagerRunner(reading, pages, torch.device("cpu")), Session(SessionId(1), SHAPE)
    session.append(None, tokens[: SHAPE.sinks])
    session.append(MessageKey("text"), tokens[SHAPE.sinks :])
    cache.admit(session)
    seconds = []
    for again in ([], *([token] for token in tokens[:DECODED])):
        session.append(MessageKey("text"), again)
        while session.pending:
            planned = schedule([session], CHUNK)
            cache.claim(session, planned.tokens)
            began = time.perf_counter()
            runner.run(planned)
            seconds.append(time.perf_counter() - began)
            cache.settle(session)
    return torch.cat(reading.read)[: len(tokens)], min(seconds[-DECODED:])


@dataclass(frozen=True, slots=True)
class Row:
    """One format: KL divergence in nats (mean, 99th percentile), same-top share, perplexity, bytes per token, and the
    speed of decode as a share of that with all pages as computed."""

    name: KvFormat
    mean: float
    high: float
    same_top: float
    perplexity: float
    bytes: int
    speed: float

    @property
    def window(self) -> int:
        """Tokens in `MEGABYTES` MB."""
        return MEGABYTES * 1_000_000 // self.bytes


def measure(
    config: ModelConfig, name: KvFormat, exact: Tensor, got: Tensor, tokens: list[int], speed: float = 1.0
) -> Row:
    """Compare the distributions after the sinks, which every format keeps as computed."""
    divergences = []
    for some, other in zip(exact[SHAPE.sinks :].split(128), got[SHAPE.sinks :].split(128), strict=True):
        p, q = some.log_softmax(-1), other.log_softmax(-1)
        divergences.append((p.exp() * (p - q)).sum(-1))
    divergence = torch.cat(divergences)
    same = (exact[SHAPE.sinks :].argmax(-1) == got[SHAPE.sinks :].argmax(-1)).float().mean()
    loss = F.cross_entropy(got[:-1], torch.tensor(tokens[1:]))
    return Row(
        name,
        float(divergence.mean().clamp(min=0)),
        float(divergence.quantile(0.99).clamp(min=0)),
        100 * float(same),
        float(loss.exp()),
        config.kv_bytes_per_token(name, bytes_per_value=2),
        speed,
    )


def table(config: ModelConfig, rows: list[Row], tokens: int) -> str:
    """The page for people, in Markdown."""
    lines = [
        "# Page formats, measured",
        "",
        "Made by `python -m tests.bench.kv_formats`; do not edit.",
        "",
        f"Model: {config.name}, {config.layers} layers, {config.kv_heads} KV heads of {config.head_dim}, float32 "
        f"arithmetic. Text: tests/cases/long_text.txt, {tokens} tokens, read in a window of {SHAPE.sinks} sink tokens "
        f"and {SHAPE.ring_pages} ring pages of {SHAPE.page_size}. KL divergence of the next token's distribution from "
        "that with the KV as computed, in millinats; same top: how often the most likely token is the same. Bytes "
        "per token count keys, values and scales of all layers; `auto` is the model's own type, here counted at 2 "
        "bytes a value (bf16 on a GPU; float32 on a CPU takes twice that). Decode: the speed behind the whole text, on "
        "a CPU, against `auto`; a number below 100 % is the price of unpacking pages. A session also has room for its "
        f"page being written and its first {SINK_TOKENS} sink tokens as computed, which is not in these numbers.",
        "",
        f"| format | KL mean | KL 99 % | same top | perplexity | bytes per token | tokens in {MEGABYTES} MB | decode |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.name} | {1000 * r.mean:.2f} | {1000 * r.high:.1f} | {r.same_top:.1f} % | {r.perplexity:.2f} "
        f"| {r.bytes:,} | {r.window:,} | {100 * r.speed:.0f} % |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write, report."""
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    model = load_model(starter_file(), device=torch.device("cpu"), dtype=torch.float32)
    tokens = model.tokenizer.encode_plain(TEXT.read_text(encoding="utf-8"))
    exact, least = read(model.decoder, tokens, KvFormat.AUTO)
    rows = []
    for name in KvFormat:
        print(f"reading in {name}", flush=True)
        got, seconds = (exact, least) if name is KvFormat.AUTO else read(model.decoder, tokens, name)
        rows.append(measure(model.config, name, exact, got, tokens, least / seconds))
    page = table(model.config, rows, len(tokens))
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(page, encoding="utf-8")
    print(page)
    report(**{f"{row.name}_kl_millinats": 1000 * row.mean for row in rows})
    report(**{f"{row.name}_same_top_percent": row.same_top for row in rows})
    report(**{f"{row.name}_decode_percent": 100 * row.speed for row in rows})
    report(**{f"{row.name}_tokens_in_{MEGABYTES}_mb": row.window for row in rows})


if __name__ == "__main__":
    main()
