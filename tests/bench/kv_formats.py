"""What each page format costs and saves, on the starter model: `python -m tests.bench.kv_formats`.

A long text is read in a window of 1,024 tokens, once with the KV as computed and once in each format, and the next
token's distributions are compared: KL divergence in millinats, and how often the most likely token is the same. The
attention is plain and dense, and follows the engine's rule: sinks and a token's own page as computed, other pages as
they come back from the format. Writes docs/kv-formats.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cache.formats.kv_format import KvFormat, PageFormat, page_format
from engine.cache.formats.rotation import rotation
from engine.cache.formats.rows import Quantiser, dequantise
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder, Phases
from engine.model.load import load_model
from engine.model.rope import Rope
from engine.types import Position
from engine.window import WindowShape, page_edge, sink_phase
from tests.bench.report import report
from tests.models import starter_file

ROOT = Path(__file__).parents[2]
TEXT, TABLE = ROOT / "tests/cases/long_text.txt", ROOT / "docs/kv-formats.md"
SHAPE, CHUNK = WindowShape(page_size=32, sinks=40, ring_pages=30), 128
MEGABYTES = 100


class DensePages:
    """The `Attend` of a text read from its start: every key and value so far, as computed and as its page keeps it."""

    def __init__(self, config: ModelConfig, chosen: PageFormat | None) -> None:
        self._config, self._format = config, chosen
        empty = torch.empty(config.kv_heads, 0, config.head_dim)
        self._kept = [(empty, empty, empty, empty)] * config.layers
        self._rotation = rotation(config.head_dim)

    def __call__(self, layer: int, q_window: Tensor, q_sink: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append and attend; see `Attend`."""
        if self._format is None:
            paged_k, paged_v = k, v
        else:
            paged_k = _kept(self._format.keys, k @ self._rotation) @ self._rotation.T
            paged_v = _kept(self._format.values, v @ self._rotation) @ self._rotation.T
        new = [t.transpose(0, 1) for t in (k, v, paged_k, paged_v)]
        keys, values, paged_keys, paged_values = (
            torch.cat((old, t), dim=1) for old, t in zip(self._kept[layer], new, strict=True)
        )
        self._kept[layer] = (keys, values, paged_keys, paged_values)
        heads, count, total = self._config.kv_heads, len(q_window), keys.shape[1]
        position, key = torch.arange(total - count, total)[:, None], torch.arange(total)
        in_sinks, start = key < SHAPE.sinks, torch.tensor([page_edge(SHAPE, Position(int(t))) for t in position])
        visible = (key <= position) & (in_sinks | (key >= start[:, None]))
        page = (key - SHAPE.sinks).div(SHAPE.page_size, rounding_mode="floor")
        as_computed = in_sinks | (page == page[position])

        def scores(q: Tensor, some: Tensor) -> Tensor:
            return torch.einsum("thgd,hnd->hgtn", q.view(count, heads, -1, q.shape[-1]), some)

        scored = torch.where(as_computed, scores(q_window, keys), scores(q_window, paged_keys))
        scored = torch.where(in_sinks, scores(q_sink, keys), scored) * self._config.head_dim**-0.5
        weights = scored.masked_fill(~visible, float("-inf")).softmax(-1)
        mixed = torch.einsum("hgtn,hnd->thgd", weights * as_computed, values)
        mixed += torch.einsum("hgtn,hnd->thgd", weights * ~as_computed, paged_values)
        return mixed.flatten(1, 2).contiguous()


def _kept(quantiser: Quantiser, rows: Tensor) -> Tensor:
    out = torch.empty_like(rows)
    dequantise(quantiser, quantiser.quantise(rows), out)
    return out


@torch.inference_mode()
def read(decoder: Decoder, tokens: list[int], name: KvFormat) -> Tensor:
    """Logits after every token, `[tokens, vocab]`."""
    config = decoder.config
    rope = Rope(config.rope, config.head_dim, torch.device("cpu"))
    attend, out, first = DensePages(config, page_format(name, config.head_dim)), [], 0
    while first < len(tokens):
        end = min(len(tokens), first + (CHUNK if first else SHAPE.sinks))
        window = [Position(t) for t in range(first, end)]
        sink = [sink_phase(SHAPE, t, page_edge(SHAPE, t)) for t in window]
        phases = Phases(rope.rotation(window), rope.rotation(sink))
        out.append(decoder.logits(decoder.forward(torch.tensor(tokens[first:end]), phases, attend)))
        first = end
    return torch.cat(out)


@dataclass(frozen=True, slots=True)
class Row:
    """One format: KL divergence in nats (mean, 99th percentile), same-top share, perplexity, bytes per token."""

    name: KvFormat
    mean: float
    high: float
    same_top: float
    perplexity: float
    bytes: int

    @property
    def window(self) -> int:
        """Tokens in `MEGABYTES` MB."""
        return MEGABYTES * 1_000_000 // self.bytes


def measure(config: ModelConfig, name: KvFormat, exact: Tensor, got: Tensor, tokens: list[int]) -> Row:
    """Compare the distributions after the sinks, which every format keeps as computed."""
    p, q = exact[SHAPE.sinks :].log_softmax(-1), got[SHAPE.sinks :].log_softmax(-1)
    divergence = (p.exp() * (p - q)).sum(-1)
    same = (p.argmax(-1) == q.argmax(-1)).float().mean()
    loss = F.cross_entropy(got[:-1], torch.tensor(tokens[1:]))
    return Row(
        name,
        float(divergence.mean().clamp(min=0)),
        float(divergence.quantile(0.99).clamp(min=0)),
        100 * float(same),
        float(loss.exp()),
        config.kv_bytes_per_token(name, bytes_per_value=2),
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
        "bytes a value (bf16 on a GPU; float32 on a CPU takes twice that).",
        "",
        f"| format | KL mean | KL 99 % | same top | perplexity | bytes per token | tokens in {MEGABYTES} MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.name} | {1000 * r.mean:.2f} | {1000 * r.high:.1f} | {r.same_top:.1f} % | {r.perplexity:.2f} "
        f"| {r.bytes:,} | {r.window:,} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write, report."""
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    model = load_model(starter_file(), device=torch.device("cpu"), dtype=torch.float32)
    tokens = model.tokenizer.encode_plain(TEXT.read_text(encoding="utf-8"))
    exact = read(model.decoder, tokens, KvFormat.AUTO)
    rows = []
    for name in KvFormat:
        got = exact if name is KvFormat.AUTO else read(model.decoder, tokens, name)
        rows.append(measure(model.config, name, exact, got, tokens))
    page = table(model.config, rows, len(tokens))
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(page, encoding="utf-8")
    print(page)
    report(**{f"{row.name}_kl_millinats": 1000 * row.mean for row in rows})
    report(**{f"{row.name}_same_top_percent": row.same_top for row in rows})
    report(**{f"{row.name}_tokens_in_{MEGABYTES}_mb": row.window for row in rows})


if __name__ == "__main__":
    main()
