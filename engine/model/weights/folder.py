"""A Hugging Face folder: config.json and safetensors, sharded or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.config import ModelConfig, RopeConfig
from engine.model.decoder import DecoderWeights
from engine.model.weights.assemble import TensorNames, assemble
from engine.types import ModelFileError, UnsupportedModelError

_NAMES = TensorNames(
    embedding="model.embed_tokens.weight",
    norm="model.norm.weight",
    head="lm_head.weight",
    layer="model.layers.{}.",
    attention_norm="input_layernorm",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    out="self_attn.o_proj",
    mlp_norm="post_attention_layernorm",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises ModelFileError when it is missing or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(f"the model folder {path.parent} lacks {path.name}") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} is not a JSON object")
    return value


class ModelFolder:
    """An opened model folder. Raises ModelFileError when files are missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._json = read_json(path / "config.json")
        self._shard_of = self._index()

    def _index(self) -> dict[str, Path]:
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            names = read_json(index).get("weight_map")
            if not isinstance(names, dict):
                raise ModelFileError(f"{index} lacks the field 'weight_map'; fetch it again")
            shards = {name: self.path / str(file) for name, file in names.items()}
        else:
            files = sorted(self.path.glob("*.safetensors"))
            if not files:
                raise ModelFileError(f"the model folder {self.path} holds no .safetensors file")
            shards = {name: file for file in files for name in _names(file)}
        missing = sorted({file.name for file in shards.values() if not file.is_file()})
        if missing:
            raise ModelFileError(f"the model folder {self.path} lacks {', '.join(missing)}; fetch it again")
        return shards

    def config(self) -> ModelConfig:
        """The model's shapes. Raises UnsupportedModelError for a family that the engine does not run."""
        raw = self._json
        family = str(raw.get("model_type", "unknown"))
        if family != "llama":
            raise UnsupportedModelError(
                f"{self.path.name} holds a model of the family '{family}'; this engine runs the family llama"
            )
        if raw.get("hidden_act", "silu") != "silu":
            raise UnsupportedModelError(
                f"{self.path.name} uses the activation '{raw['hidden_act']}'; the family llama is run with silu"
            )
        try:
            hidden, q_heads = int(raw["hidden_size"]), int(raw["num_attention_heads"])
            return ModelConfig(
                name=str(raw.get("_name_or_path") or self.path.name),
                family=family,
                vocab=int(raw["vocab_size"]),
                hidden=hidden,
                layers=int(raw["num_hidden_layers"]),
                q_heads=q_heads,
                kv_heads=int(raw.get("num_key_value_heads") or q_heads),
                head_dim=int(raw.get("head_dim") or hidden // q_heads),
                intermediate=int(raw["intermediate_size"]),
                norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
                context=int(raw.get("max_position_embeddings", 2048)),
                tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
                rope=self._rope(),
                stop_ids=self._stop_ids(),
            )
        except KeyError as error:
            raise ModelFileError(f"{self.path / 'config.json'} lacks the field {error}") from error
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ModelFileError(f"{self.path / 'config.json'} holds a field of the wrong kind ({error})") from error

    def _rope(self) -> RopeConfig:
        # transformers 5 writes everything into rope_parameters; 4 wrote rope_theta and rope_scaling.
        raw = self._json.get("rope_parameters") or self._json.get("rope_scaling") or {}
        kind = str(raw.get("rope_type", raw.get("type", "default")))
        part = float(raw.get("partial_rotary_factor") or self._json.get("partial_rotary_factor") or 1.0)
        if part != 1.0:
            raise UnsupportedModelError(
                f"{self.path.name} rotates {part:g} of each head's dimensions; this engine rotates all of them"
            )
        return RopeConfig(
            theta=float(raw.get("rope_theta") or self._json.get("rope_theta") or 10000.0),
            kind=kind,
            factor=float(raw.get("factor", 1.0)),
            low_freq_factor=float(raw.get("low_freq_factor", 1.0)),
            high_freq_factor=float(raw.get("high_freq_factor", 4.0)),
            original_context=int(raw.get("original_max_position_embeddings", 8192)),
        )

    def _stop_ids(self) -> tuple[int, ...]:
        stops: list[int] = []
        sources = [self._json]
        generation = self.path / "generation_config.json"
        if generation.is_file():
            sources.insert(0, read_json(generation))
        for source in sources:
            value = source.get("eos_token_id")
            stops += value if isinstance(value, list) else [value] if value is not None else []
        return tuple(dict.fromkeys(int(stop) for stop in stops))

    def weights(
        self, config: ModelConfig, dtype: torch.dtype, device: torch.device, on_layer: Callable[[int], None]
    ) -> DecoderWeights:
        """All weights in `dtype` on `device`. Raises ModelFileError when one is missing, damaged or misshapen."""
        return assemble(_Shards(self.path, self._shard_of, dtype), _NAMES, config, device, on_layer)


@dataclass(frozen=True, slots=True)
class _Shards:
    """The tensors of a folder, each in the file that holds it."""

    path: Path
    shard_of: dict[str, Path]
    dtype: torch.dtype

    def has(self, name: str) -> bool:
        return name in self.shard_of

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self.shard_of:
            raise ModelFileError(f"the model folder {self.path} lacks the tensor '{name}'; fetch it again")
        file = self.shard_of[name]
        try:
            with safe_open(file, framework="pt") as shard:
                tensor: Tensor = shard.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{file.name} is damaged ({error}); fetch it again") from error
        if tensor.shape != shape:
            raise ModelFileError(
                f"{file.name} holds '{name}' in the shape {list(tensor.shape)} where config.json says {list(shape)}; "
                "fetch both again"
            )
        return tensor.to(self.dtype)


def _names(file: Path) -> list[str]:
    try:
        with safe_open(file, framework="pt") as shard:
            return list(shard.keys())
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{file.name} is damaged ({error}); fetch it again") from error
