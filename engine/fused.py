"""A step's tokens by the CPU's fused kernels, where the model and its pages allow it."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention import PrefillChunk, decode_row
from engine.attention_cpu import keys_of
from engine.cache.pages import Pages
from engine.model.config import Activation, Norms, QkNorm
from engine.model.decoder import Decoder, LayerWeights, Phases
from engine.model.mlp import GatedMlp
from engine.model.weights.quantised import PackedLinear
from engine.session import Session
from engine.types import Position
from engine.window import Sight
from kernels.cpu.decode_attention import DIMS
from kernels.cpu.decode_layers import MOST_LAYERS, MOST_TOKENS, DecodeLayers, LayerParts, SeenSlots
from kernels.cpu.page_rows import PAGE_TYPES
from kernels.cpu.prefill_layers import PrefillLayers
from kernels.cpu.team import team


class FusedLayers:
    """The layers of a decoder in one call."""

    def __init__(self, decoder: Decoder, parts: list[LayerParts], pages: Pages) -> None:
        self._embedding = decoder.weights.embedding
        self._scale = decoder.config.embedding_scale
        k, v = (t.flatten(2, 3) for t in (pages.k, pages.v))
        eps, scale = decoder.config.norm_eps, decoder.config.scoring.scale
        self._few = DecodeLayers(parts, k, v, eps=eps, scale=scale, team=team())
        self._many = PrefillLayers(parts, k, v, eps=eps, scale=scale, team=team())

    def forward(self, tokens: Tensor, phases: Phases, seen: list[SeenSlots]) -> Tensor:
        """As `Decoder.forward`, attention included."""
        hidden, turns = self._begin(tokens, phases)
        self._few(hidden, turns, seen)
        return hidden

    def forward_chunk(self, tokens: Tensor, phases: Phases, chunk: PrefillChunk) -> Tensor:
        """The same of consecutive tokens of one session, all sinks or all ring, however many."""
        hidden, turns = self._begin(tokens, phases)
        self._many(hidden, turns, chunk.slots, keys_of(chunk))
        return hidden

    def _begin(self, tokens: Tensor, phases: Phases) -> tuple[Tensor, Tensor]:
        sink = phases.window if phases.sink is None else phases.sink
        turns = torch.cat([t for (r,) in (phases.window, sink) for t in (r.cos, r.sin)], dim=1)
        return self._embedding.rows(tokens) * self._scale, turns


def fused_layers(decoder: Decoder, pages: Pages) -> FusedLayers | None:
    """None for a decoder that is not Llama-shaped and packed throughout, or whose pages are not all as computed."""
    config = decoder.config
    rope = config.layer_kinds[0].rope
    if (
        type(pages) is not Pages
        or pages.k.device.type != "cpu"
        or pages.k.dtype not in PAGE_TYPES
        or config.norms is not Norms.BEFORE
        or config.activation is not Activation.SILU
        or config.qk_norm is QkNorm.WIDTH
        or config.experts is not None
        or config.residual_scale != 1
        or config.scoring.cap is not None
        or any(kind.window is not None or kind.rope != rope for kind in config.layer_kinds)
        or config.head_dim % DIMS
        or rope is None
        or rope.dims not in (None, config.head_dim)
        or config.layers > MOST_LAYERS
    ):
        return None
    parts = [_parts(layer) for layer in decoder.weights.layers]
    found = [part for part in parts if part is not None]
    return FusedLayers(decoder, found, pages) if len(found) == len(parts) else None


def slots_seen(work: list[tuple[Session, list[Sight]]]) -> list[SeenSlots] | None:
    """What each next token of the sessions sees, `[tokens]` sights each; None when they are too many, or when one of
    them would be written over what another one still sees."""
    if sum(len(seen) for _, seen in work) > MOST_TOKENS:
        return None
    slots = []
    for session, seen in work:
        shape, first = session.shape, session.position
        last = Position(first + len(seen) - 1)
        recycles = last >= shape.sinks + shape.ring_tokens
        if recycles and shape.page_start(first) != shape.page_start(last):
            return None
        for index, sight in enumerate(seen):
            row = decode_row(session, sight, Position(first + index))
            sinks, ring = ([(r.first, r.end) for r in runs] for runs in (row.sinks, row.window))
            slots.append(SeenSlots(row.slot, sinks, ring))
    return slots


def _parts(layer: LayerWeights) -> LayerParts | None:
    if not isinstance(layer.mlp, GatedMlp) or layer.attention_norm is None or layer.mlp_norm is None:
        return None
    qkv, out, gate_up, down = layer.qkv, layer.out, layer.mlp.gate_up, layer.mlp.down
    if (
        not isinstance(qkv, PackedLinear)
        or not isinstance(out, PackedLinear)
        or not isinstance(gate_up, PackedLinear)
        or not isinstance(down, PackedLinear)
        or any(linear.bias is not None for linear in (out, gate_up, down))
    ):
        return None
    return LayerParts(
        qkv.weight, qkv.bias, out.weight, gate_up.weight, down.weight, layer.attention_norm, layer.mlp_norm,
        layer.q_norm, layer.k_norm,
    )  # fmt: skip
