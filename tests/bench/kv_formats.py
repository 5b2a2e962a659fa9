"""What each page format costs and saves, on the starter model: `python -m tests.bench.kv_formats`.

A long text is read by the engine in a window of 1,000 tokens, once in each format, `full` being all as computed,
and the next token's distributions are compared: KL divergence in millinats, and how often the most likely token is
the same. Speed is that of the program's own weights and kernels, at the same quota. Writes docs/kv-formats.md.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat, page_type
from engine.cache.kv_cache import KvCache
from engine.cache.packed import SINK_TOKENS, pages_for
from engine.engine import Engine, EngineConfig
from engine.model.config import ModelConfig
from engine.model.decoder import Attend, Decoder, DecoderWeights, Phases
from engine.model.load import LoadedModel, load_model
from engine.runner import EagerRunner
from engine.sampling.params import SamplingParams
from engine.scheduler import schedule
from engine.session import Session
from engine.types import MessageKey, SessionId
from engine.window import WindowShape
from kernels.cpu.ready import wait_compiled
from tests.bench.report import report
from tests.models import starter_file

ROOT = Path(__file__).parents[2]
TEXT, TABLE = ROOT / "tests/cases/long_text.txt", ROOT / "docs/kv-formats.md"
SHAPE, CHUNK = WindowShape(page_size=32, sinks=40, ring_pages=30), 128
CPU = torch.device("cpu")
QUOTA, PROMPT, DECODED, ROUNDS = 1024, 900, 24, 3
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


def read(decoder: Decoder, tokens: list[int], name: KvFormat) -> Tensor:
    """Logits after every token, `[tokens, vocab]`."""
    config, reading = decoder.config, ReadingDecoder(decoder.config, decoder.weights)
    pages = pages_for(
        name,
        config,
        sessions=1,
        quota_pages=SHAPE.quota_pages,
        page_size=SHAPE.page_size,
        dtype=page_type(name, torch.float32, CPU),
        device=CPU,
    )
    cache = KvCache(config.name, pages, sessions=1, quota_pages=SHAPE.quota_pages, host_images=0)
    runner, session = EagerRunner(reading, pages, CPU), Session(SessionId(1), SHAPE)
    session.append(None, tokens[: SHAPE.sinks])
    session.append(MessageKey("text"), tokens[SHAPE.sinks :])
    cache.admit(session)
    while session.pending:
        planned = schedule([session], CHUNK)
        cache.claim(session, planned.tokens)
        runner.run(planned)
        cache.settle(session)
    return torch.cat(reading.read)


def token_seconds(model: LoadedModel, text: str) -> dict[KvFormat, float]:
    """What a token takes behind a prompt that nearly fills the window, at the same quota in each format: the least of
    all its tokens in rounds in which the formats take turns."""
    taken: dict[KvFormat, list[float]] = {name: [] for name in KvFormat}
    for _ in range(ROUNDS):
        for name, seconds in taken.items():
            engine = Engine(model, EngineConfig(quota_tokens=QUOTA, kv_format=name))
            chat = engine.open_session("")
            engine.add_user(chat, MessageKey("question"), text)
            engine.generate(chat, MessageKey("answer"), SamplingParams(max_tokens=DECODED, end_loops=False))
            while engine.unread(chat) > 1:
                engine.step()
            while engine.busy:
                began = time.perf_counter()
                engine.step()
                seconds.append(time.perf_counter() - began)
    return {name: min(seconds) for name, seconds in taken.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """One format: KL divergence in nats (mean, 99th percentile), same-top share, perplexity, bytes per token, and the
    speed of decode as a share of that of `auto`."""

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

    @property
    def pace(self) -> str:
        """The speed in words."""
        if self.name is KvFormat.AUTO:
            return "100 %"
        said = "slower than `auto`" if self.speed < 0.98 else "as fast" if self.speed < 1.02 else "faster"
        return f"{100 * self.speed:.0f} %: {said}"


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
        config.kv_bytes_per_token(name, page_type(name, torch.float32, CPU).itemsize),
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
        f"and {SHAPE.ring_pages} ring pages of {SHAPE.page_size}, on a CPU. KL divergence of the next token's "
        "distribution from that with the KV as computed (`full`, float32), in millinats; same top: how often the most "
        "likely token is the same. Bytes per token count keys, values and scales of all layers; `auto` is float16 "
        f"(bfloat16 on a GPU). Decode: the speed behind {PROMPT} tokens, with the weights as the program holds them by "
        "default, against `auto` at the same quota; where a format is slower, it says so. A session "
        f"also has room for its page being written and its first {SINK_TOKENS} sink tokens as "
        "computed, which is not in these numbers.",
        "",
        f"| format | KL mean | KL 99 % | same top | perplexity | bytes per token | tokens in {MEGABYTES} MB | decode |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.name} | {1000 * r.mean:.3f} | {1000 * r.high:.1f} | {r.same_top:.1f} % | {r.perplexity:.2f} "
        f"| {r.bytes:,} | {r.window:,} | {r.pace} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


def speeds() -> dict[KvFormat, float]:
    """Seconds of a token in each format, with the weights as the program holds them by default."""
    if not wait_compiled(600):
        raise SystemExit("the CPU kernels could not be compiled")
    own = load_model(starter_file(), device=CPU, dtype=torch.float32, form=None)
    start = own.tokenizer.encode_plain(TEXT.read_text(encoding="utf-8"))[:PROMPT]
    seconds = token_seconds(replace(own, stop_ids=frozenset()), own.tokenizer.decode(start))
    print(", ".join(f"{name} {1000 * taken:.1f} ms a token" for name, taken in seconds.items()), flush=True)
    return seconds


def main() -> None:
    """Measure, write, report."""
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    seconds = speeds()
    model = load_model(starter_file(), device=CPU, dtype=torch.float32)
    tokens = model.tokenizer.encode_plain(TEXT.read_text(encoding="utf-8"))
    exact = read(model.decoder, tokens, KvFormat.FULL)
    rows = []
    for name in KvFormat:
        print(f"reading in {name}", flush=True)
        got = exact if name is KvFormat.FULL else read(model.decoder, tokens, name)
        rows.append(measure(model.config, name, exact, got, tokens, seconds[KvFormat.AUTO] / seconds[name]))
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
