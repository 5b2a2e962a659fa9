"""What `aios-chat models` prints: the models that are here or can be fetched, and what each costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.models.errors import ModelError
from app.models.hub import COMPLETE
from app.models.kv_format import KvFormat
from app.models.manifest import Attention, ModelEntry, ModelKind, entries
from app.models.verify import Presence, presence
from app.models.weights import Shape, WeightCost, folder_shapes, gguf_shapes, weight_costs


@dataclass(frozen=True, slots=True)
class FormatCost:
    """A token's K and V in full pages of one format, scales included."""

    format: KvFormat
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model. `kv_bytes_per_token` is for the page format `auto`; None where it has no KV cache or is unread.
    `kv_formats` are the same bytes in each page format, `weights` what the weights take in each form."""

    name: str
    """What `--model` takes, or the embedder's name."""
    title: str
    kind: ModelKind
    family: str
    bytes: int
    """On disk (present) or once fetched."""
    kv_bytes_per_token: int | None
    licence: str
    present: bool
    kv_formats: tuple[FormatCost, ...] = ()
    weights: tuple[WeightCost, ...] = ()


def list_models(models_folder: Path) -> list[ModelRow]:
    """Shipped models first, then what was fetched from the hub or put into `models_folder` as a .gguf file.

    A file that cannot be read as a model is listed with family "unreadable": one bad file hides no other.
    """
    rows = [_shipped(entry, models_folder) for entry in entries()]
    rows.sort(key=lambda row: row.kind is ModelKind.EMBEDDER)
    return rows + [_local(path) for path in _local_models(models_folder)]


def read_local(path: Path) -> ModelRow:
    """The facts of a GGUF file or a Hugging Face folder. Raises ModelError when it cannot be read."""
    try:
        return _read_folder(path) if path.is_dir() else _read_gguf(path)
    except ModelError:
        raise
    except Exception as error:  # a damaged header makes the readers fail in any way there is
        raise ModelError(f"{path} cannot be read as a model ({type(error).__name__}).") from error


def _shipped(entry: ModelEntry, models_folder: Path) -> ModelRow:
    return ModelRow(
        name=entry.name,
        title=entry.title,
        kind=entry.kind,
        family=entry.family,
        bytes=entry.bytes,
        kv_bytes_per_token=entry.attention.kv_bytes_per_token() if entry.attention else None,
        licence=entry.licence,
        present=presence(entry, models_folder) is not Presence.ABSENT,
        kv_formats=_costs(entry.attention) if entry.attention else (),
        weights=entry.weights,
    )


def _local_models(models_folder: Path) -> Iterator[Path]:
    yield from sorted(models_folder.glob("*.gguf"))
    yield from sorted(mark.parent for mark in models_folder.glob(f"hub/*/{COMPLETE}"))


def _local(path: Path) -> ModelRow:
    try:
        return read_local(path)
    except ModelError:
        return ModelRow(str(path), path.name, ModelKind.CHAT, "unreadable", _size(path), None, "", True)


def _read_gguf(path: Path) -> ModelRow:
    # The library maps the file and reads only the header; it costs an import of numpy.
    from gguf import GGUFReader

    reader = GGUFReader(path)
    fields = reader.fields

    def value(key: str) -> Any:
        field = fields.get(key)
        return None if field is None else field.contents()

    family = str(value("general.architecture"))
    heads = value(f"{family}.attention.head_count")
    kv_heads = value(f"{family}.attention.head_count_kv") or heads
    head_size = value(f"{family}.attention.key_length") or value(f"{family}.embedding_length") // heads
    attention = Attention(value(f"{family}.block_count"), kv_heads, head_size)
    shapes = (Shape(tensor.name, tuple(int(size) for size in reversed(tensor.shape))) for tensor in reader.tensors)
    return ModelRow(
        name=str(path),
        title=str(value("general.name") or path.stem),
        kind=ModelKind.CHAT,
        family=family,
        bytes=path.stat().st_size,
        kv_bytes_per_token=attention.kv_bytes_per_token(),
        licence=str(value("general.license") or ""),
        present=True,
        kv_formats=_costs(attention),
        weights=weight_costs(gguf_shapes(shapes)),
    )


def _read_folder(path: Path) -> ModelRow:
    config = json.loads((path / "config.json").read_text("utf-8"))
    # Models that see as well as read keep the language model's sizes one level down.
    text = config.get("text_config", config)
    heads = text["num_attention_heads"]
    attention = Attention(
        layers=text["num_hidden_layers"],
        kv_heads=text.get("num_key_value_heads") or heads,
        head_size=text.get("head_dim") or text["hidden_size"] // heads,
    )
    return ModelRow(
        name=str(path),
        title=path.name.replace("--", "/"),
        kind=ModelKind.CHAT,
        family=str(config["model_type"]),
        bytes=_size(path),
        kv_bytes_per_token=attention.kv_bytes_per_token(),
        licence=_card_licence(path / "README.md"),
        present=True,
        kv_formats=_costs(attention),
        weights=weight_costs(folder_shapes(path, tied=_tied(text, config))),
    )


def _tied(*configs: dict[str, Any]) -> bool:
    return any(config.get("tie_word_embeddings", False) for config in configs)


def _costs(attention: Attention) -> tuple[FormatCost, ...]:
    return tuple(FormatCost(name, attention.kv_bytes_per_token(name)) for name in KvFormat)


def _card_licence(card: Path) -> str:
    """The `license:` line of a model card's front matter, "" where there is none."""
    if not card.is_file():
        return ""
    lines = card.read_text("utf-8", "replace").splitlines()
    if not lines or lines[0].strip() != "---":
        return ""
    for line in lines[1:]:
        if line.strip() == "---":
            break
        if line.startswith("license:"):
            return line.partition(":")[2].strip()
    return ""


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(child.stat().st_size for child in path.rglob("*") if child.is_file())
