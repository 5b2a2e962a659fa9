"""Writes a tiny transformers model as llama.cpp's converter does: its tensor names come from the gguf library's own
map, its order of rows, its norms and its fields from the converter's rules for each architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedModel

from tests.engine.tiny import TEMPLATE

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("in", "g")]
TOKENS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES), *SPECIALS]
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
}
INTERLEAVED = ("llama", "mistral", "smollm3", "granite")
K_QUANTS = {
    # Offsets of the float16 scales in a block of 256, and their sizes: d and, for the first two, dmin.
    GGMLQuantizationType.Q4_K: ((0, 2.2e-4), (2, 1.6e-3)),
    GGMLQuantizationType.Q5_K: ((0, 1.1e-4), (2, 1.6e-3)),
    GGMLQuantizationType.Q6_K: ((208, 4e-5),),
}


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp's order of the rows of q and k: the pairs that are rotated together are neighbours."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).transpose(1, 2).reshape(weight.shape)


def _paired(weight: Tensor, heads: int) -> Tensor:
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def _blocks(rows: int, columns: int, kind: GGMLQuantizationType) -> np.ndarray:
    """A matrix of random valid blocks of a K-quant: the gguf library reads these and does not write them."""
    size, block = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(rows * columns)
    data = rng.integers(0, 256, (rows * columns // size, block), dtype=np.uint8)
    for offset, scale in K_QUANTS[kind]:
        scales = (scale * (0.5 + rng.random(len(data)))).astype(np.float16)
        data[:, offset : offset + 2] = scales[:, None].view(np.uint8)
    return data.reshape(rows, -1)


class _Writer:
    """Stores one tensor after another, and gives the model the values that the file holds."""

    def __init__(self, writer: GGUFWriter, kind: GGMLQuantizationType, ends: GGMLQuantizationType) -> None:
        self.writer, self.kind, self.ends = writer, kind, ends

    def add(self, name: str, values: Tensor) -> Tensor:
        """Write `values`; vectors and routers stay F32. Returns what a reader gets."""
        whole = values.dim() < 2 or "ffn_gate_inp" in name
        kind = GGMLQuantizationType.F32 if whole else self.kind if name.startswith("blk.") else self.ends
        if kind in K_QUANTS:
            flat = _blocks(values.numel() // values.shape[-1], values.shape[-1], kind)
            data = flat.reshape(*values.shape[:-1], -1)
        else:
            data = quantize(np.ascontiguousarray(values.numpy()), kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)
        return torch.from_numpy(np.array(dequantize(data, kind), dtype=np.float32)).view(values.shape)


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    *,
    change: Callable[[GGUFWriter], None] = lambda _writer: None,
    pre: str = "smollm",
    architecture: str | None = None,
    ends: GGMLQuantizationType | None = None,
) -> None:
    """Write `model` in `kind`, embedding and head in `ends` if that is another (see `_Writer.add`); afterwards `model`
    has the weights that the file holds."""
    family = model.config.model_type
    arch = ARCHITECTURES[family]
    writer = GGUFWriter(str(path), architecture or gguf.MODEL_ARCH_NAMES[arch])
    _common_fields(writer, model.config)
    _own_fields(writer, model.config)
    _tokenizer_fields(writer, pre)
    change(writer)
    names, tensors = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers), _Writer(writer, kind, ends or kind)
    for name, parameter in model.named_parameters():
        if name != "lm_head.weight" or not family.startswith("gemma"):
            _add(tensors, names, family, name, parameter, _heads(name, model))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _heads(name: str, model: PreTrainedModel) -> int | None:
    if model.config.model_type not in INTERLEAVED:
        return None
    if ".q_proj." in name:
        return int(model.config.num_attention_heads)
    return int(model.config.num_key_value_heads) if ".k_proj." in name else None


def _add(
    tensors: _Writer, names: gguf.TensorNameMap, family: str, name: str, parameter: Tensor, heads: int | None
) -> None:
    values = parameter.detach()

    def add(original: str, part: Tensor) -> Tensor:
        stored = names.get_name(original, try_suffixes=(".weight", ".bias"))
        assert stored is not None, original
        return tensors.add(stored, part.contiguous())

    if name.endswith("mlp.experts.gate_up_proj"):
        prefix = name.removesuffix("gate_up_proj")
        halves = zip(("gate_proj", "up_proj"), values.chunk(2, dim=1), strict=True)
        held = torch.cat([add(f"{prefix}{half}.weight", part) for half, part in halves], dim=1)
    elif name.endswith("mlp.experts.down_proj"):
        held = add(f"{name}.weight", values)
    elif family.startswith("gemma") and name.endswith("norm.weight"):
        held = add(name, values + 1) - 1
    elif heads is not None:
        held = _paired(add(name, interleaved(values, heads)), heads)
    else:
        held = add(name, values)
    with torch.no_grad():
        parameter.copy_(held)


def _common_fields(writer: GGUFWriter, c: Any) -> None:
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    writer.add_name("tiny")
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    if c.model_type not in ("phi3", "granite"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if c.model_type != "gemma2":
        writer.add_rope_freq_base(rope["rope_theta"])
    if c.model_type in INTERLEAVED:
        writer.add_rope_dimension_count(head_dim)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "attention_factor" in rope:  # llama.cpp multiplies YaRN's own by it
            writer.add_rope_scaling_attn_factors(rope["attention_factor"] / (0.1 * np.log(rope["factor"]) + 1))
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, head_dim))


def _llama3_factors(rope: dict[str, float], head_dim: int) -> np.ndarray:
    plain = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    wavelengths, context = 2 * np.pi / plain, rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    smooth = ((context / wavelengths - low) / (high - low)).clip(0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def _own_fields(writer: GGUFWriter, c: Any) -> None:
    match c.model_type:
        case "gemma2":
            if c.attn_logit_softcapping is not None:
                writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
            writer.add_final_logit_softcapping(c.final_logit_softcapping)
            writer.add_sliding_window(c.sliding_window)
        case "gemma3_text":
            writer.add_sliding_window(c.sliding_window)
            if c.final_logit_softcapping is not None:
                writer.add_final_logit_softcapping(c.final_logit_softcapping)
        case "phi3":
            head_dim = c.hidden_size // c.num_attention_heads
            writer.add_rope_dimension_count(int(head_dim * c.rope_parameters["partial_rotary_factor"]))
            writer.add_rope_scaling_orig_ctx_len(c.original_max_position_embeddings)
            writer.add_sliding_window(c.sliding_window or 0)
        case "granite":
            writer.add_attention_scale(c.attention_multiplier)
            writer.add_embedding_scale(c.embedding_multiplier)
            writer.add_residual_scale(c.residual_multiplier)
            writer.add_logit_scale(c.logits_scaling)
        case "qwen3_moe":
            writer.add_expert_count(c.num_experts)
            writer.add_expert_used_count(c.num_experts_per_tok)
            writer.add_expert_feed_forward_length(c.moe_intermediate_size)


def _tokenizer_fields(writer: GGUFWriter, pre: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in TOKENS])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(TOKENS.index("<|im_start|>"))
    writer.add_eos_token_id(TOKENS.index("<|im_end|>"))
    writer.add_chat_template(TEMPLATE)


def the_tokenizer() -> Tokenizer:
    """The tokenizer that the file describes, as its Hugging Face folder would have it."""
    fast = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(TOKENS)}, merges=MERGES))
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(SPECIALS)
    return fast
