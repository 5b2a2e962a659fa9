"""The metadata of a GGUF file, turned into a ModelConfig: what all families share, then one small function for what a
family's own fields change. The keys, and what a silent file means, are llama.cpp's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.model.config import Activation, Experts, LayerConfig, ModelConfig, RopeConfig, RopeKind, Scoring, rope_kind
from engine.model.families import Family, by_architecture
from engine.model.rope import attention_factor
from engine.types import ModelFileError, UnsupportedModelError


class Metadata(Protocol):
    """What is asked of an opened GGUF file."""

    @property
    def name(self) -> str:
        """The file's name, for sentences."""

    def field(self, key: str, default: Any = None) -> Any:
        """A field's value. Raises ModelFileError when it is broken."""

    def need(self, key: str) -> Any:
        """A field's value. Raises ModelFileError when it is missing too."""

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""

    def rows(self, name: str) -> int:
        """Rows of a tensor. Raises ModelFileError when it is missing."""

    def numbers(self, name: str) -> tuple[float, ...]:
        """All values of a small tensor, () when there is none."""


def family_of(file: Metadata) -> Family:
    """The file's family. Raises UnsupportedModelError."""
    return by_architecture(str(file.need("general.architecture")), file.name)


def read_config(file: Metadata) -> ModelConfig:
    """The config of the model in the file.

    Raises UnsupportedModelError for what the engine does not run, ModelFileError for missing or wrong fields.
    """
    family = family_of(file)
    fields = _Fields(file, str(family.architecture))
    try:
        return _OWN.get(family.model_type, _as_it_is)(_common(fields, family), fields)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelFileError(f"{file.name} holds a field of the wrong kind ({error}); fetch it again") from error


@dataclass(frozen=True, slots=True)
class _Fields:
    """A file's fields under its architecture's name."""

    file: Metadata
    architecture: str

    def get(self, key: str, default: Any = None) -> Any:
        return self.file.field(f"{self.architecture}.{key}", default)

    def need(self, key: str) -> Any:
        return self.file.need(f"{self.architecture}.{key}")

    def number(self, key: str) -> float | None:
        value = self.get(key)
        return None if value is None else float(value)


def _common(fields: _Fields, family: Family) -> ModelConfig:
    file = fields.file
    hidden, q_heads = int(fields.need("embedding_length")), int(fields.need("attention.head_count"))
    head_dim = int(fields.get("attention.key_length", hidden // q_heads))
    named = (file.field(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return ModelConfig(
        name=str(file.field("general.name", file.name)),
        family=family.model_type,
        vocab=file.rows("token_embd.weight"),
        hidden=hidden,
        q_heads=q_heads,
        kv_heads=int(fields.get("attention.head_count_kv", q_heads)),
        head_dim=head_dim,
        intermediate=int(fields.need("feed_forward_length")),
        norm_eps=float(fields.need("attention.layer_norm_rms_epsilon")),
        context=int(fields.need("context_length")),
        tied_embeddings=not file.has("output.weight"),
        layer_kinds=_layers(fields, family, head_dim),
        scoring=Scoring(head_dim**-0.5),
        norms=family.norms,
        qk_norm=family.qk_norm,
        activation=Activation(family.activation),
        embedding_scale=hidden**0.5 if family.scaled_embeddings else 1.0,
        stop_ids=tuple(dict.fromkeys(int(i) for i in named if i is not None)),
    )


def _layers(fields: _Fields, family: Family, head_dim: int) -> tuple[LayerConfig, ...]:
    count, window = int(fields.need("block_count")), _window(fields, family)
    every, local = _ropes(fields, family, head_dim)
    pattern = fields.get("attention.sliding_window_pattern", family.global_every)
    is_local = [bool(x) for x in pattern] if isinstance(pattern, list) else [
        not pattern or (i + 1) % int(pattern) != 0 for i in range(count)
    ]  # fmt: skip
    layers = []
    for i in range(count):
        here = window if is_local[i] else None
        turned = not family.nope_every or (i + 1) % family.nope_every != 0
        layers.append(LayerConfig((every if here is None else local) if turned else None, here))
    return tuple(layers)


def _window(fields: _Fields, family: Family) -> int | None:
    # Files of families that seldom have a window write none, or 0 (Phi-4); Gemma 2's first files left out the 4096.
    return int(fields.get("attention.sliding_window", family.window if family.global_every else 0) or 0) or None


def _ropes(fields: _Fields, family: Family, head_dim: int) -> tuple[RopeConfig, RopeConfig]:
    """The rotary embedding of layers without a native window, and of those with one."""
    dims = int(fields.get("rope.dimension_count", head_dim))
    if fields.file.has("rope_factors_long.weight"):
        rope_kind("longrope", fields.file.name)
    kind = str(fields.get("rope.scaling.type", "none"))
    every = RopeConfig(
        theta=float(fields.get("rope.freq_base", 10000.0)),
        kind=rope_kind("default" if kind == "none" else kind, fields.file.name),
        factor=float(fields.get("rope.scaling.factor", 1.0)),
        original_context=int(fields.get("rope.scaling.original_context_length", fields.need("context_length"))),
        frequency_factors=fields.file.numbers("rope_freqs.weight"),
        dims=None if dims == head_dim else dims,
        beta_fast=float(fields.get("rope.scaling.yarn_beta_fast", 32.0)),
        beta_slow=float(fields.get("rope.scaling.yarn_beta_slow", 1.0)),
    )
    every = replace(every, attention_factor=_attention_factor(fields, every))
    if family.local_theta is None:
        return every, every
    return every, RopeConfig(float(fields.get("rope.freq_base_swa", family.local_theta)), dims=every.dims)


def _attention_factor(fields: _Fields, rope: RopeConfig) -> float:
    """Both fields multiply what the kind says by itself, as in llama.cpp."""
    ext = float(fields.get("rope.scaling.yarn_ext_factor", 1.0))
    if rope.kind is RopeKind.YARN and ext != 1.0:
        raise UnsupportedModelError(
            f"{fields.file.name} has a yarn_ext_factor of {ext:g}, which this engine does not run; take a file with 1"
        )
    scales = (float(fields.get(f"rope.scaling.{name}", 1.0)) for name in ("attn_factor", "yarn_attn_factor"))
    return math.prod(scales) * attention_factor(rope)


# --- what a family's own fields change ---


def _as_it_is(config: ModelConfig, _fields: _Fields) -> ModelConfig:
    return config


def _llama(config: ModelConfig, fields: _Fields) -> ModelConfig:
    if fields.get("expert_count", 0):
        raise UnsupportedModelError(
            f"{fields.file.name} is a mixture of {fields.get('expert_count')} experts of the family 'llama', which "
            "this engine does not run; take a dense llama model"
        )
    return config


def _gemma(config: ModelConfig, fields: _Fields) -> ModelConfig:
    # The files say nothing of the queries' scale; the 27B models (46 and 62 layers) have another than their head size.
    width = config.hidden // config.q_heads if config.layers in (46, 62) else config.head_dim
    return replace(
        config,
        scoring=Scoring(
            fields.number("attention.scale") or width**-0.5,
            fields.number("attn_logit_softcapping"),
        ),
        logit_cap=fields.number("final_logit_softcapping"),
    )


def _granite(config: ModelConfig, fields: _Fields) -> ModelConfig:
    return replace(
        config,
        scoring=Scoring(fields.number("attention.scale") or config.head_dim**-0.5),
        embedding_scale=fields.number("embedding_scale") or 1.0,
        residual_scale=fields.number("residual_scale") or 1.0,
        logit_scale=1 / (fields.number("logit_scale") or 1.0),
    )


def _qwen3_moe(config: ModelConfig, fields: _Fields) -> ModelConfig:
    experts = Experts(
        count=int(fields.need("expert_count")),
        active=int(fields.need("expert_used_count")),
        intermediate=int(fields.need("expert_feed_forward_length")),
        normalised=bool(fields.get("expert_weights_norm", True)),
    )
    return replace(
        config, experts=experts, layer_kinds=tuple(replace(kind, sparse=True) for kind in config.layer_kinds)
    )


def _olmo2(config: ModelConfig, fields: _Fields) -> ModelConfig:
    if fields.get("attention.sliding_window"):
        raise UnsupportedModelError(
            f"{fields.file.name} has a sliding window of {fields.get('attention.sliding_window')} tokens: it is an "
            "OLMo 3, which this engine does not run; take an OLMo 2"
        )
    return config


_OWN: dict[str, Callable[[ModelConfig, _Fields], ModelConfig]] = {
    "llama": _llama,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "granite": _granite,
    "qwen3_moe": _qwen3_moe,
    "olmo2": _olmo2,
}
