"""A Hugging Face folder: config.json and safetensors, sharded or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.config import ModelConfig, Norms
from engine.model.families import Family
from engine.model.weights.assemble import ExpertNames, TensorNames, TensorSource, row_ranges
from engine.model.weights.folder_config import family_of, read_config
from engine.types import ModelFileError

# Where the names of norms stand: before and after attention, before and after the MLP.
_NORMS: dict[Norms, tuple[str | None, str | None, str | None, str | None]] = {
    Norms.BEFORE: ("input_layernorm", None, "post_attention_layernorm", None),
    Norms.AFTER: (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    Norms.AROUND: (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}
_EXPERTS = ExpertNames("mlp.gate", ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"), "mlp.experts.{}.down_proj")
_STACKED_EXPERTS = ExpertNames("mlp.gate", ("mlp.experts.gate_up_proj",), "mlp.experts.down_proj")


def _names(family: Family, layers: int, has: Callable[[str], bool]) -> TensorNames:
    """Hugging Face's names. Multimodal checkpoints have their text model under a longer prefix; mixtures have their
    experts one by one, or stacked as transformers 5 holds them."""
    prefixes = ("model.", "model.language_model.", "language_model.model.")
    prefix = next((p for p in prefixes if has(f"{p}embed_tokens.weight")), prefixes[0])
    attention, attention_post, mlp, mlp_post = _NORMS[family.norms]
    stacked = any(has(f"{prefix}layers.{i}.mlp.experts.gate_up_proj") for i in range(layers))
    single = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return TensorNames(
        embedding=f"{prefix}embed_tokens.weight",
        norm=f"{prefix}norm.weight",
        head="language_model.lm_head.weight" if prefix == prefixes[2] else "lm_head.weight",
        layer=f"{prefix}layers.{{}}.",
        qkv=("self_attn.qkv_proj",) if family.fused else single,
        out="self_attn.o_proj",
        gate_up=("mlp.gate_up_proj",) if family.fused else ("mlp.gate_proj", "mlp.up_proj"),
        down="mlp.down_proj",
        q_norm="self_attn.q_norm",
        k_norm="self_attn.k_norm",
        attention_norm=attention,
        attention_post_norm=attention_post,
        mlp_norm=mlp,
        mlp_post_norm=mlp_post,
        experts=_STACKED_EXPERTS if stacked else _EXPERTS,
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
                raise ModelFileError(self._why_no_file())
            shards = {name: file for file in files for name in _held(file)}
        missing = sorted({file.name for file in shards.values() if not file.is_file()})
        if missing:
            raise ModelFileError(f"the model folder {self.path} lacks {', '.join(missing)}; fetch it again")
        return shards

    def _why_no_file(self) -> str:
        pickles = sorted(self.path.glob("*.bin"))
        if not pickles:
            return f"the model folder {self.path} holds no .safetensors file"
        return (
            f"the model folder {self.path} has its weights in {pickles[0].name}, a pickle, which could run code when "
            "it is opened: take a copy of the model with .safetensors files"
        )

    def config(self) -> ModelConfig:
        """The model's shapes. Raises UnsupportedModelError for a family that the engine does not run."""
        return read_config(self._json, self.path, self._stop_ids())

    def _stop_ids(self) -> tuple[int, ...]:
        stops: list[int] = []
        sources = [self._json]
        generation = self.path / "generation_config.json"
        if generation.is_file():
            sources.insert(0, read_json(generation))
        for source in sources:
            value = source.get("eos_token_id")
            stops += value if isinstance(value, list) else [value] if value is not None else []
        try:
            return tuple(dict.fromkeys(int(stop) for stop in stops))
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"{self.path} names {stops!r:.60} as eos_token_id, which must be numbers") from error

    def tensors(self, config: ModelConfig, dtype: torch.dtype) -> tuple[TensorSource, TensorNames]:
        """The weights, to be read in `dtype`, and their names."""
        shards = _Shards(self.path, self._shard_of, dtype)
        return shards, _names(family_of(self._json, self.path.name), config.layers, shards.has)


@dataclass(frozen=True, slots=True)
class _Shards:
    """The tensors of a folder, each in the file that holds it."""

    path: Path
    shard_of: dict[str, Path]
    dtype: torch.dtype

    def has(self, name: str) -> bool:
        return name in self.shard_of

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        with self._opened(name) as shard:
            self._check(name, shape, shard)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        with self._opened(name) as shard:
            self._check(name, shape, shard)
            # A copy always: what safetensors gives is a view of the file, and whoever replaces that would change us.
            return cast(Tensor, shard.get_tensor(name).to(self.dtype, copy=True))

    def pieces(self, name: str, shape: tuple[int, int]) -> Iterator[Tensor]:
        for first, last in row_ranges(shape):
            with self._opened(name) as shard:
                self._check(name, shape, shard)
                yield shard.get_slice(name)[first:last].to(self.dtype, copy=True)

    def _check(self, name: str, shape: tuple[int, ...], shard: Any) -> None:
        found = tuple(shard.get_slice(name).get_shape())
        if found != shape:
            raise ModelFileError(
                f"{self.shard_of[name].name} holds '{name}' in the shape {list(found)} where config.json says "
                f"{list(shape)}; fetch both again"
            )

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        if name not in self.shard_of:
            raise ModelFileError(f"the model folder {self.path} lacks the tensor '{name}'; fetch it again")
        file = self.shard_of[name]
        try:
            with safe_open(file, framework="pt") as shard:
                yield shard
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{file.name} is damaged ({error}); fetch it again") from error


def _held(file: Path) -> list[str]:
    try:
        with safe_open(file, framework="pt") as shard:
            return list(shard.keys())
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{file.name} is damaged ({error}); fetch it again") from error
