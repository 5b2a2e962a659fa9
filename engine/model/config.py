"""What a model is, read from its own file. Families differ in these fields only."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.cache.formats.kv_format import KvFormat, kv_bytes_per_head
from engine.types import ModelFileError, UnsupportedModelError

SUPPORTED_FAMILIES = ("llama",)


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: `theta`, and the scaling kind with its numbers.

    kind "default", "linear" (divide by `factor`) or "llama3" (Llama 3.1's three bands). `frequency_factors`, when
    given (GGUF's `rope_freqs`, which hold Llama 3's bands), divide each inverse frequency first.
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    frequency_factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("default", "linear", "llama3"):
            raise UnsupportedModelError(
                f"this model uses the rotary embedding '{self.kind}'; supported are default, linear and llama3"
            )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes and constants of a decoder-only transformer."""

    name: str
    family: str
    vocab: int
    hidden: int
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_eps: float
    context: int
    tied_embeddings: bool
    rope: RopeConfig
    stop_ids: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.family not in SUPPORTED_FAMILIES:
            raise UnsupportedModelError(
                f"'{self.name}' is of the family '{self.family}', which this engine does not run; "
                f"it runs: {', '.join(SUPPORTED_FAMILIES)} (SmolLM2, Llama 2/3, TinyLlama and their fine-tunes)"
            )
        if min(self.vocab, self.hidden, self.layers, self.q_heads, self.kv_heads, self.head_dim, self.intermediate) < 1:
            raise ModelFileError(f"'{self.name}' gives a size of its model as 0 or less; fetch it again")
        if self.q_heads % self.kv_heads:
            raise UnsupportedModelError(
                f"'{self.name}' has {self.q_heads} query heads and {self.kv_heads} KV heads; "
                "the first must be a multiple of the second"
            )

    @property
    def q_width(self) -> int:
        """Rows of the query projection."""
        return self.q_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Rows of the key projection, and of the value's."""
        return self.kv_heads * self.head_dim

    def kv_bytes_per_token(self, name: KvFormat, bytes_per_value: int) -> int:
        """Bytes of a token in a full page of that format, scales included: layers x KV heads x (key + value).

        `bytes_per_value` is the model's own type's, which only `auto` depends on.
        """
        return self.layers * self.kv_heads * kv_bytes_per_head(name, self.head_dim, bytes_per_value)
