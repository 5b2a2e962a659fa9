"""What a model is, read from its own file. Families differ in these fields only: the decoder knows no family."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.cache.formats.kv_format import KvFormat, kv_bytes_per_head
from engine.types import ModelFileError, UnsupportedModelError


class RopeKind(StrEnum):
    """How a rotary embedding was stretched beyond the context it was first trained on."""

    DEFAULT = "default"
    LINEAR = "linear"
    LLAMA3 = "llama3"
    YARN = "yarn"


class Norms(StrEnum):
    """Where RMS norms stand: before attention and MLP (Llama), after them (OLMo 2), or both (Gemma 2)."""

    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"


class QkNorm(StrEnum):
    """What is normed of queries and keys before they are rotated: nothing, each head (Qwen3), or all heads at once
    (OLMo 2)."""

    NONE = "none"
    HEAD = "head"
    WIDTH = "width"


class Activation(StrEnum):
    """The gate's activation, by Hugging Face's name."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: `theta`, and the scaling kind with its numbers.

    - linear: every frequency is divided by `factor`.
    - llama3: Llama 3.1's three bands, by `factor`, the two `*_freq_factor`s and `original_context`.
    - yarn (arXiv 2309.00071): dimensions that turn more than `beta_fast` times in `original_context` tokens are kept,
      those that turn less than `beta_slow` times are divided by `factor`, those between blended; `truncate` rounds
      the two limits outwards to whole dimensions.
    - `frequency_factors`, when given (GGUF's `rope_freqs`, which hold Llama 3's bands), divide each frequency first.
    - `dims`: how many of a head's dimensions are rotated, the first ones; None for all (Phi-4-mini rotates 3/4).
    - `attention_factor` multiplies what is rotated; None for the kind's own, which is 1 for all but yarn.
    """

    theta: float = 10000.0
    kind: RopeKind = RopeKind.DEFAULT
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    frequency_factors: tuple[float, ...] = ()
    dims: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None


def rope_kind(name: str, file: str) -> RopeKind:
    """The kind that a file calls `name`. Raises UnsupportedModelError for one whose angles change as a chat grows
    (longrope, dynamic) or that is not known: a key is rotated once and must stay right for ever."""
    if name not in list(RopeKind):
        raise UnsupportedModelError(
            f"{file} uses the rotary embedding '{name}', which this engine does not run; it runs: {', '.join(RopeKind)}"
        )
    return RopeKind(name)


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What one layer has of its own.

    rope: None where queries and keys are not rotated at all (NoPE layers of SmolLM3).
    window: tokens that the layer's own sliding window shows, the newest included; None for no such window.
    sparse: whether the MLP is a mixture of experts.
    """

    rope: RopeConfig | None
    window: int | None = None
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the product of a query and a key becomes a score: times `scale`, then `cap * tanh(score / cap)` where there
    is a cap (Gemma 2)."""

    scale: float
    cap: float | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `active` of `count` gated MLPs of `intermediate` run for a token, weighted by the softmax
    of the router over all of them; `normalised` when the weights of those that run are made to sum to 1."""

    count: int
    active: int
    intermediate: int
    normalised: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes and constants of a decoder-only transformer.

    norm_offset: what is added to a norm's stored weight (1 in Gemma's own checkpoints, whose norms start at 0).
    embedding_scale, residual_scale: multiply the embedding, and what attention and MLP add to the residual stream.
    logit_scale, logit_cap: the logits are multiplied by the first and then capped like attention scores.
    """

    name: str
    family: str
    vocab: int
    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_eps: float
    context: int
    tied_embeddings: bool
    layer_kinds: tuple[LayerConfig, ...]
    scoring: Scoring
    norms: Norms = Norms.BEFORE
    qk_norm: QkNorm = QkNorm.NONE
    activation: Activation = Activation.SILU
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None
    experts: Experts | None = None
    stop_ids: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        sizes = [self.vocab, self.hidden, self.layers, self.q_heads, self.kv_heads, self.head_dim, self.intermediate]
        sizes += [kind.window for kind in self.layer_kinds if kind.window is not None]
        if self.experts is not None:
            sizes += [self.experts.count, self.experts.active, self.experts.intermediate]
        if min(sizes) < 1:
            raise ModelFileError(f"'{self.name}' gives a size of its model as 0 or less; fetch it again")
        if self.q_heads % self.kv_heads:
            raise UnsupportedModelError(
                f"'{self.name}' has {self.q_heads} query heads and {self.kv_heads} KV heads; "
                "the first must be a multiple of the second"
            )
        if self.experts is not None and self.experts.active > self.experts.count:
            raise ModelFileError(
                f"'{self.name}' runs {self.experts.active} of its {self.experts.count} experts; fetch it again"
            )
        dims = [self.head_dim if rope.dims is None else rope.dims for rope in self.ropes]
        if any(n % 2 or not 0 < n <= self.head_dim for n in dims):
            raise UnsupportedModelError(
                f"'{self.name}' rotates {max(dims)} of a head's {self.head_dim} dimensions; an even number of them, "
                "at least 2, can be rotated"
            )

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.layer_kinds)

    @property
    def ropes(self) -> tuple[RopeConfig, ...]:
        """The rotary embeddings that occur, each once."""
        return tuple(dict.fromkeys(kind.rope for kind in self.layer_kinds if kind.rope is not None))

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The native windows that occur, each once; None stands for layers without one."""
        return tuple(dict.fromkeys(kind.window for kind in self.layer_kinds))

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

        `bytes_per_value` is `page_type`'s, which only the formats that are not quantised depend on.
        """
        return self.layers * self.kv_heads * kv_bytes_per_head(name, self.head_dim, bytes_per_value)
