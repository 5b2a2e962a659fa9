"""The judge: a dense float32 decoder with design.md's visibility, written in the plainest way.

It keeps raw keys and rotates them anew for every query at their places inside the cache (StreamingLLM's way), so it
shares neither code nor method with the two-phase query that it checks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import LlamaForCausalLM


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


def _rotate(x: Tensor, places: Tensor, inverse: Tensor) -> Tensor:
    """Rotate `x` `[..., heads, dim]` to `places` `[...]`, halves paired."""
    angles = places.double()[..., None] * inverse
    cos = torch.cat((angles.cos(), angles.cos()), -1)[..., None, :].float()
    sin = torch.cat((angles.sin(), angles.sin()), -1)[..., None, :].float()
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


@torch.no_grad()
def reference_logits(
    model: LlamaForCausalLM, tokens: list[int], *, sinks: int, page: int, ring: int, message_starts: list[int]
) -> Tensor:
    """Logits at every position, float32 `[tokens, vocab]`."""
    config, count = model.config, len(tokens)
    dim = config.head_dim
    group = config.num_attention_heads // config.num_key_value_heads
    inverse = model.model.rotary_emb.inv_freq.double()
    # places[t, n]: where key n stands inside the cache that query t looks at, -1 where it is not in there.
    places = torch.full((count, count), -1)
    for t in range(count):
        see = visible(t, sinks, page, ring, message_starts)
        places[t, see] = torch.arange(len(see))
    unseen = (places < 0)[:, None, :]
    hidden = model.model.embed_tokens(torch.tensor(tokens))
    for layer in model.model.layers:
        x = layer.input_layernorm(hidden)
        q = layer.self_attn.q_proj(x).view(count, -1, dim)
        k = layer.self_attn.k_proj(x).view(count, -1, dim)
        v = layer.self_attn.v_proj(x).view(count, -1, dim).repeat_interleave(group, dim=1)
        queries = _rotate(q, places.diagonal(), inverse)
        rows = []
        for some, at, away in zip(queries.split(64), places.split(64), unseen.split(64), strict=True):
            keys = _rotate(k.expand(len(some), -1, -1, -1), at.clamp(min=0), inverse).repeat_interleave(group, dim=2)
            scores = torch.einsum("thd,tnhd->thn", some, keys) / math.sqrt(dim)
            rows.append(torch.einsum("thn,nhd->thd", scores.masked_fill(away, -math.inf).softmax(-1), v).flatten(1))
        hidden = hidden + layer.self_attn.o_proj(torch.cat(rows))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return model.lm_head(model.model.norm(hidden))
