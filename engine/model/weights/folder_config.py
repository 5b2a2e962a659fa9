"""config.json of a Hugging Face folder, turned into a ModelConfig: what all families share, then one small function
for what a family's own fields change."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.model.config import (
    Activation,
    Experts,
    LayerConfig,
    ModelConfig,
    RopeConfig,
    RopeKind,
    Scoring,
    rope_kind,
)
from engine.model.families import Family, by_model_type
from engine.types import ModelFileError, UnsupportedModelError

Raw = dict[str, Any]

# What Gemma 3's multimodal checkpoints leave out of their text_config (the text model of the 4B one).
_GEMMA3_TEXT = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4}


def family_of(raw: Raw, folder: str) -> Family:
    """The family of a folder called `folder`. Raises UnsupportedModelError."""
    return by_model_type(str(_text_part(raw).get("model_type", "unknown")), folder)


def read_config(raw: Raw, path: Path, stop_ids: tuple[int, ...]) -> ModelConfig:
    """The config of the model in the folder `path`, whose config.json holds `raw`.

    Raises UnsupportedModelError for what the engine does not run, ModelFileError for missing or wrong fields.
    """
    family, raw = family_of(raw, path.name), _text_part(raw)
    try:
        return _OWN.get(family.model_type, _as_it_is)(_common(raw, family, path.name, stop_ids), raw)
    except KeyError as error:
        raise ModelFileError(f"{path / 'config.json'} lacks the field {error}") from error
    except (TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise ModelFileError(f"{path / 'config.json'} holds a field of the wrong kind ({error})") from error


def _text_part(raw: Raw) -> Raw:
    """The text model's fields: those of a multimodal Gemma 3 stand apart."""
    part = raw.get("text_config")
    if raw.get("model_type") != "gemma3" or not isinstance(part, dict):
        return raw
    return _GEMMA3_TEXT | {"model_type": "gemma3_text"} | part


def _common(raw: Raw, family: Family, file: str, stop_ids: tuple[int, ...]) -> ModelConfig:
    hidden, q_heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
    head_dim = int(raw.get("head_dim") or family.head_dim or hidden // q_heads)
    return ModelConfig(
        name=str(raw.get("_name_or_path") or file),
        family=family.model_type,
        vocab=int(raw["vocab_size"]),
        hidden=hidden,
        q_heads=q_heads,
        kv_heads=int(raw.get("num_key_value_heads") or q_heads),
        head_dim=head_dim,
        intermediate=int(raw["intermediate_size"]),
        norm_eps=float(raw.get("rms_norm_eps", family.norm_eps)),
        context=int(raw.get("max_position_embeddings", 2048)),
        tied_embeddings=bool(raw.get("tie_word_embeddings", family.tied)),
        layer_kinds=_layers(raw, family, file, head_dim),
        scoring=Scoring(head_dim**-0.5),
        norms=family.norms,
        qk_norm=family.qk_norm,
        activation=_activation(raw, family, file),
        norm_offset=1.0 if family.zero_centred_norms else 0.0,
        embedding_scale=hidden**0.5 if family.scaled_embeddings else 1.0,
        stop_ids=stop_ids,
    )


def _activation(raw: Raw, family: Family, file: str) -> Activation:
    # Gemma's `hidden_act` says "gelu" and is not what its models were trained with; `hidden_activation` is.
    own = "hidden_activation" if family.activation is Activation.GELU_TANH else "hidden_act"
    name = str(raw.get(own) or family.activation)
    if name not in list(Activation):
        raise UnsupportedModelError(
            f"{file} uses the activation '{name}', which this engine does not run; it runs: {', '.join(Activation)}"
        )
    return Activation(name)


def _layers(raw: Raw, family: Family, file: str, head_dim: int) -> tuple[LayerConfig, ...]:
    count = int(raw["num_hidden_layers"])
    every, local = _ropes(raw, family, file, head_dim)
    rotated = raw.get("no_rope_layers") or [
        not family.nope_every or (i + 1) % family.nope_every != 0 for i in range(count)
    ]
    windows = _windows(raw, family, [bool(turned) for turned in rotated])
    return tuple(
        LayerConfig((every if window is None else local) if turned else None, window)
        for turned, window in zip(rotated[:count], windows, strict=True)
    )


def _windows(raw: Raw, family: Family, rotated: list[bool]) -> list[int | None]:
    count = int(raw["num_hidden_layers"])
    window = raw.get("sliding_window", family.window)
    if window is None or (family.window_switch and not raw.get("use_sliding_window", False)):
        return [None] * count
    if raw.get("layer_types"):
        local = [kind == "sliding_attention" for kind in raw["layer_types"]]
    elif family.global_every:
        # Gemma 3's first configurations wrote the period down.
        every = int(raw.get("sliding_window_pattern") or family.global_every)
        local = [(i + 1) % every != 0 for i in range(count)]
    elif family.late_windows:
        local = [i >= int(raw.get("max_window_layers", 28)) for i in range(count)]
    else:
        local = [not (family.nope_every and turned) for turned in rotated[:count]]
    return [int(window) if here else None for here in local]


def _ropes(raw: Raw, family: Family, file: str, head_dim: int) -> tuple[RopeConfig, RopeConfig]:
    """The rotary embedding of layers without a native window, and of those with one."""
    # transformers 5 writes everything into rope_parameters; 4 wrote rope_theta and rope_scaling.
    fields = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if "full_attention" in fields:
        local = _rope(fields["sliding_attention"], raw, family.local_theta or family.theta, file, head_dim)
        return _rope(fields["full_attention"], raw, family.theta, file, head_dim), local
    theta = float(raw.get("rope_theta") or family.theta)
    every = _rope(fields, raw, theta, file, head_dim)
    if family.local_theta is None:
        return every, every
    return every, _rope({}, raw, float(raw.get("rope_local_base_freq") or family.local_theta), file, head_dim)


def _rope(fields: Raw, raw: Raw, theta: float, file: str, head_dim: int) -> RopeConfig:
    name = str(fields.get("rope_type", fields.get("type", "default")))
    # Phi-3 calls its longrope "su" or "yarn" as well; its factors for long chats give it away.
    kind = rope_kind("longrope" if "long_factor" in fields else name, file)
    part = float(fields.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0)
    trained = fields.get("original_max_position_embeddings") or raw.get("original_max_position_embeddings")
    context = int(raw.get("max_position_embeddings", 2048))
    factor = fields.get("factor")
    if factor is None:
        factor = context / int(trained) if kind is RopeKind.YARN and trained else 1.0
    return RopeConfig(
        theta=float(fields.get("rope_theta") or theta),
        kind=kind,
        factor=float(factor),
        low_freq_factor=float(fields.get("low_freq_factor", 1.0)),
        high_freq_factor=float(fields.get("high_freq_factor", 4.0)),
        original_context=int(trained or (context if kind is RopeKind.YARN else 8192)),
        dims=None if part == 1.0 else int(head_dim * part),
        beta_fast=float(fields.get("beta_fast") or 32.0),
        beta_slow=float(fields.get("beta_slow") or 1.0),
        truncate=bool(fields.get("truncate", True)),
        attention_factor=_attention_factor(fields, float(factor)),
    )


def _attention_factor(fields: Raw, factor: float) -> float | None:
    if fields.get("attention_factor") is not None:
        return float(fields["attention_factor"])
    above, below = (float(fields.get(name) or 0.0) for name in ("mscale", "mscale_all_dim"))
    if not above or not below or factor <= 1:
        return None
    return (0.1 * above * math.log(factor) + 1) / (0.1 * below * math.log(factor) + 1)


# --- what a family's own fields change ---


def _as_it_is(config: ModelConfig, _raw: Raw) -> ModelConfig:
    return config


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def _gemma2(config: ModelConfig, raw: Raw) -> ModelConfig:
    scale = float(raw.get("query_pre_attn_scalar", 256)) ** -0.5
    return replace(
        config,
        scoring=Scoring(scale, _optional(raw.get("attn_logit_softcapping", 50.0))),
        logit_cap=_optional(raw.get("final_logit_softcapping", 30.0)),
    )


def _gemma3(config: ModelConfig, raw: Raw) -> ModelConfig:
    if raw.get("use_bidirectional_attention"):
        raise UnsupportedModelError(
            f"'{config.name}' looks at later tokens too (use_bidirectional_attention): it embeds text and cannot chat"
        )
    return replace(
        config,
        scoring=Scoring(float(raw.get("query_pre_attn_scalar", 256)) ** -0.5),
        logit_cap=_optional(raw.get("final_logit_softcapping")),
    )


def _granite(config: ModelConfig, raw: Raw) -> ModelConfig:
    return replace(
        config,
        scoring=Scoring(float(raw.get("attention_multiplier", 1.0))),
        embedding_scale=float(raw.get("embedding_multiplier", 1.0)),
        residual_scale=float(raw.get("residual_multiplier", 1.0)),
        logit_scale=1 / float(raw.get("logits_scaling", 1.0)),
    )


def _qwen3_moe(config: ModelConfig, raw: Raw) -> ModelConfig:
    experts = Experts(
        count=int(raw.get("num_experts") or raw.get("num_local_experts") or 128),
        active=int(raw.get("num_experts_per_tok", 8)),
        intermediate=int(raw.get("moe_intermediate_size", 768)),
        normalised=bool(raw.get("norm_topk_prob", False)),
    )
    dense, step = set(raw.get("mlp_only_layers") or []), int(raw.get("decoder_sparse_step", 1))
    layers = tuple(
        replace(kind, sparse=i not in dense and (i + 1) % step == 0) for i, kind in enumerate(config.layer_kinds)
    )
    return replace(config, experts=experts, layer_kinds=layers)


_OWN: dict[str, Callable[[ModelConfig, Raw], ModelConfig]] = {
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "granite": _granite,
    "qwen3_moe": _qwen3_moe,
}
