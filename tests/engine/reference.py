"""The judge: a dense float32 decoder with design.md's visibility, written in the plainest way.

It keeps raw keys and rotates them anew for every query at their places inside the cache (StreamingLLM's way), so it
shares neither code nor method with the two-phase query that it checks. A layer's own sliding window is counted in the
same places: it hides what stands its length or more before the query inside the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.cache.formats.kv_format import PageFormat
from engine.cache.formats.rotation import rotation
from engine.cache.formats.rows import Quantiser, dequantise


def visible(t: int, sinks: int, page: int, ring: int, message_starts: list[int]) -> list[int]:
    """see(t), straight from the definition."""
    if t < sinks:
        return list(range(t + 1))
    start = max(sinks, sinks + ((t - sinks) // page - ring + 1) * page)
    if start > sinks:
        earlier = [m for m in message_starts if m <= start]
        later = [m for m in message_starts if start < m <= t]
        if earlier and earlier[-1] != start and later and later[0] - earlier[-1] <= ring * page // 2:
            start = later[0]
    return list(range(sinks)) + list(range(start, t + 1))


def visible_after(floor: int, t: int, sinks: int) -> list[int]:
    """The same when everything between the sinks and `floor` was dropped and computing began anew."""
    return list(range(min(sinks, t + 1))) + list(range(floor, t + 1))


def _rotate(x: Tensor, places: Tensor, inverse: Tensor) -> Tensor:
    """Rotate `x` `[..., heads, dim]` to `places` `[...]`, halves paired."""
    angles = places.double()[..., None] * inverse
    cos = torch.cat((angles.cos(), angles.cos()), -1)[..., None, :].float()
    sin = torch.cat((angles.sin(), angles.sin()), -1)[..., None, :].float()
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _kind(model: PreTrainedModel, index: int) -> tuple[Tensor | None, int | None]:
    """A layer's inverse frequencies (None: it does not rotate) and its native window (None: it has none)."""
    config, rotary = model.config, model.model.rotary_emb
    if config.model_type == "gemma3_text":
        kind = config.layer_types[index]
        local = kind == "sliding_attention"
        return getattr(rotary, f"{kind}_inv_freq").double(), config.sliding_window if local else None
    native = getattr(config, "sliding_window", None)
    if config.model_type == "gemma2" and config.layer_types[index] == "full_attention":
        native = None
    rotates = getattr(model.model.layers[index].self_attn, "use_rope", True)
    return rotary.inv_freq.double() if rotates else None, native


@dataclass(frozen=True)
class Packing:
    """Full pages come back from `chosen`, but for the first `kept` sink pages.

    A value that lies between two levels may fall to either side for a rounding error in its 7th digit. Given what the
    pages hold, `[layers, tokens, heads, dim]` as (keys, values), that is used, and compared with what is expected.
    """

    chosen: PageFormat
    kept: int
    held: tuple[Tensor, Tensor] | None = None

    def as_computed(self, count: int, sinks: int, page: int) -> Tensor:
        """`[query, key]`: whether a query sees a key as it was computed: in a kept page, or in the query's own."""
        sink_pages = -(-sinks // page)
        number = torch.tensor([t // page if t < sinks else sink_pages + (t - sinks) // page for t in range(count)])
        return (number < min(self.kept, sink_pages)) | (number[:, None] == number)

    def back(self, layer: int, k: Tensor, v: Tensor, inverse: Tensor | None) -> tuple[Tensor, Tensor]:
        """Keys, not rotated to a place, and values `[tokens, heads, dim]`, as their pages give them back."""
        turn, at = rotation(k.shape[-1]), torch.arange(len(k))
        placed = k if inverse is None else _rotate(k, at, inverse)
        keys, values = _through(self.chosen.keys, placed @ turn), _through(self.chosen.values, v @ turn)
        if self.held is not None:
            keys, values = (
                _rarely_other(held[layer], own) for held, own in zip(self.held, (keys, values), strict=True)
            )
        keys = keys @ turn.T
        return keys if inverse is None else _rotate(keys, -at, inverse), values @ turn.T


@dataclass(frozen=True)
class Halved:
    """All keys, rotated to their positions, and all values are rounded to float16; `held` see `Packing`: most of it is
    expected within `close`."""

    held: tuple[Tensor, Tensor] | None = None
    close: float = 1e-4

    def as_computed(self, count: int, sinks: int, page: int) -> Tensor:
        """`[query, key]`: none, not even a token's own."""
        return torch.zeros(count, count, dtype=torch.bool)

    def back(self, layer: int, k: Tensor, v: Tensor, inverse: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Packing.back`."""
        at = torch.arange(len(k))
        placed = k if inverse is None else _rotate(k, at, inverse)
        keys, values = placed.half().float(), v.half().float()
        if self.held is not None:
            keys, values = (
                _rarely_other(held[layer], own, self.close) for held, own in zip(self.held, (keys, values), strict=True)
            )
        return keys if inverse is None else _rotate(keys, -at, inverse), values


def _rarely_other(held: Tensor, expected: Tensor, close: float = 1e-4) -> Tensor:
    known = ~held.isnan()
    other = (held - expected).abs()[known] > close
    assert float(other.float().mean()) < 0.01, f"{int(other.sum())} of {int(known.sum())} values held are others"
    return torch.where(known, held, expected)


def _through(quantiser: Quantiser, rows: Tensor) -> Tensor:
    out = torch.empty_like(rows)
    dequantise(quantiser, quantiser.quantise(rows), out)
    return out


@torch.no_grad()
def reference_logits(
    model: PreTrainedModel,
    tokens: list[int],
    *,
    sinks: int,
    page: int,
    ring: int,
    message_starts: list[int],
    packing: Packing | Halved | None = None,
    see: Callable[[int], list[int]] | None = None,
    noted: Tensor | None = None,
) -> Tensor:
    """Logits at every position, float32 `[tokens, vocab]`. What a token sees is `visible`, or else what `see` says.

    Attention weights, summed over layers and heads, are added to `noted` `[query, key]`.
    """
    config, count = model.config, len(tokens)
    # places[t, n]: where key n stands inside the cache that query t looks at, -1 where it is not in there.
    places = torch.full((count, count), -1)
    for t in range(count):
        seen = visible(t, sinks, page, ring, message_starts) if see is None else see(t)
        places[t, seen] = torch.arange(len(seen))
    own = places.diagonal()
    exact = torch.ones_like(places, dtype=torch.bool) if packing is None else packing.as_computed(count, sinks, page)
    hidden = model.model.embed_tokens(torch.tensor(tokens)) * getattr(config, "embedding_multiplier", 1)
    for index, layer in enumerate(model.model.layers):
        inverse, native = _kind(model, index)
        unseen = places < 0
        if native is not None:
            # The layer's own window, counted where the tokens stand inside the cache.
            unseen = unseen | (own[:, None] - places >= native)
        around = hasattr(layer, "pre_feedforward_layernorm")
        back = None if packing is None else partial(packing.back, index)
        normed = layer.input_layernorm(hidden)
        # YaRN: whatever is rotated is also lengthened.
        longer = 1.0 if inverse is None else getattr(model.model.rotary_emb, "attention_scaling", 1.0)
        attended = _attention(layer.self_attn, normed, places, unseen, inverse, longer, exact, back, noted)
        hidden = hidden + (layer.post_attention_layernorm(attended) if around else attended)
        if around:
            hidden = hidden + layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(hidden)))
        else:
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return _capped(model.lm_head(model.model.norm(hidden)), getattr(config, "final_logit_softcapping", None))


def _attention(
    attention: Any,
    x: Tensor,
    places: Tensor,
    unseen: Tensor,
    inverse: Tensor | None,
    longer: float,
    exact: Tensor,
    back: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]] | None,
    noted: Tensor | None,
) -> Tensor:
    """`exact` `[query, key]` says where a key and its value are those that were computed; elsewhere they are `back`."""
    count, dim, group = len(x), attention.head_dim, attention.num_key_value_groups
    q = attention.q_proj(x).view(count, -1, dim)
    k = attention.k_proj(x).view(count, -1, dim)
    v = attention.v_proj(x).view(count, -1, dim)
    if hasattr(attention, "q_norm"):
        q, k = attention.q_norm(q), attention.k_norm(k)
    queries = longer**2 * (q if inverse is None else _rotate(q, places.diagonal(), inverse))
    pairs = [(k, v, exact)] if back is None else [(k, v, exact), (*back(k, v, inverse), ~exact)]
    rows = []
    for some, at, away, first in zip(
        *(t.split(64) for t in (queries, places, unseen)), range(0, count, 64), strict=True
    ):
        scores = torch.zeros(len(some), q.shape[1], count)
        for raw, _, of in pairs:
            keys = raw.expand(len(some), -1, -1, -1)
            keys = keys if inverse is None else _rotate(keys, at.clamp(min=0), inverse)
            products = torch.einsum("thd,tnhd->thn", some, keys.repeat_interleave(group, dim=2)) * attention.scaling
            scores += products * of[first : first + 64, None]
        scores = _capped(scores, getattr(attention, "attn_logit_softcapping", None))
        weights = scores.masked_fill(away[:, None], -math.inf).softmax(-1)
        if noted is not None:
            noted[first : first + 64] += weights.sum(1)
        mixed = [
            torch.einsum("thn,nhd->thd", weights * of[first : first + 64, None], values.repeat_interleave(group, dim=1))
            for _, values, of in pairs
        ]
        rows.append(sum(mixed[1:], mixed[0]).flatten(1))
    return attention.o_proj(torch.cat(rows))


def _capped(x: Tensor, cap: float | None) -> Tensor:
    return x if cap is None else torch.tanh(x / cap) * cap
