"""The table of families: what each changes that its files do not say, and how the files call it.

A family is a row here. What a row cannot say (numbers in its own fields of config.json or of GGUF's metadata) is read
by a small function in `weights/folder_config.py` and `weights/gguf_config.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.config import Activation, Norms, QkNorm
from engine.types import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Family:
    """One family of models.

    - title: what people call it; model_type: what config.json does; architecture: what GGUF does, None where GGUF
      files of it say they are another family's (Mistral's say llama).
    - fused: its checkpoints hold q, k and v as one tensor, and gate and up as one.
    - zero_centred_norms: its Hugging Face checkpoints store norm weights minus 1 (GGUF files never do).
    - interleaved: its GGUF files store the rows of q and k so that neighbouring dimensions are rotated together.
    - scaled_embeddings: embeddings are multiplied by sqrt(hidden).
    - window: its native sliding window where a file does not say; global_every: every n-th layer is without one;
      window_switch: config.json has `use_sliding_window`, which must be set; late_windows: only layers from
      `max_window_layers` on have one.
    - nope_every: every n-th layer is not rotated where a file does not say.
    - theta, local_theta, norm_eps, head_dim, tied: what a silent file means; local_theta is the rotary base of layers
      with a native window, None where it is the others'.
    """

    title: str
    model_type: str
    architecture: str | None
    norms: Norms = Norms.BEFORE
    qk_norm: QkNorm = QkNorm.NONE
    activation: Activation = Activation.SILU
    fused: bool = False
    zero_centred_norms: bool = False
    interleaved: bool = False
    scaled_embeddings: bool = False
    window: int | None = None
    global_every: int = 0
    window_switch: bool = False
    late_windows: bool = False
    nope_every: int = 0
    theta: float = 10000.0
    local_theta: float | None = None
    norm_eps: float = 1e-6
    head_dim: int | None = None
    tied: bool = False


FAMILIES = (
    Family("Llama 2/3 (SmolLM2, TinyLlama)", "llama", "llama", interleaved=True),
    Family("Mistral", "mistral", None, window=4096),
    Family("Qwen2/2.5", "qwen2", "qwen2", window=4096, window_switch=True, late_windows=True),
    Family(
        "Qwen3", "qwen3", "qwen3",
        qk_norm=QkNorm.HEAD, window=4096, window_switch=True, late_windows=True, head_dim=128,
    ),
    Family("Qwen3-MoE", "qwen3_moe", "qwen3moe", qk_norm=QkNorm.HEAD, window=4096, window_switch=True),
    Family(
        "Gemma 2", "gemma2", "gemma2",
        norms=Norms.AROUND, activation=Activation.GELU_TANH, zero_centred_norms=True, scaled_embeddings=True,
        window=4096, global_every=2, head_dim=256, tied=True,
    ),
    Family(
        "Gemma 3 (text)", "gemma3_text", "gemma3",
        norms=Norms.AROUND, qk_norm=QkNorm.HEAD, activation=Activation.GELU_TANH, zero_centred_norms=True,
        scaled_embeddings=True, window=4096, global_every=6, theta=1e6, local_theta=10000.0, head_dim=256, tied=True,
    ),
    Family("Phi-3/4", "phi3", "phi3", fused=True, norm_eps=1e-5),
    Family("SmolLM3", "smollm3", "smollm3", interleaved=True, window_switch=True, nope_every=4, theta=2e6, tied=True),
    Family("Granite 3", "granite", "granite", interleaved=True),
    Family("OLMo 2", "olmo2", "olmo2", norms=Norms.AFTER, qk_norm=QkNorm.WIDTH, norm_eps=1e-5),
)  # fmt: skip


def by_model_type(name: str, file: str) -> Family:
    """The family that config.json calls `name`. Raises UnsupportedModelError naming it and those there are."""
    found = next((family for family in FAMILIES if family.model_type == name), None)
    return found or _refuse(name, file)


def by_architecture(name: str, file: str) -> Family:
    """The family that a GGUF file calls `name`. Raises UnsupportedModelError naming it and those there are."""
    found = next((family for family in FAMILIES if family.architecture == name), None)
    return found or _refuse(name, file)


def _refuse(name: str, file: str) -> Family:
    raise UnsupportedModelError(
        f"{file} holds a model of the family '{name}', which this engine does not run; "
        f"it runs: {', '.join(family.title for family in FAMILIES)}"
    )
