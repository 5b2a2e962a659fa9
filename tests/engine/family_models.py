"""A tiny random model of each family, written by transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.engine.gguf_files import TOKENS
from tests.engine.tiny import TEMPLATE, byte_tokenizer

WINDOW = 24
"""A native window that the prompt of these tests is longer than."""
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPE: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "bos_token_id": 256,
    "eos_token_id": 258,
    "pad_token_id": None,
    "initializer_range": 0.15,
}
ZERO_CENTRED = ("gemma2", "gemma3_text")
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": WINDOW}
GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "logits_scaling": 0.7,
}
GEMMA3_ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
PHI3_PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}

# What each family is tried with; the first line of a family is its plain form.
FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "rope_parameters": YARN}),
    ("mistral", {"sliding_window": None, "head_dim": 16}),
    ("mistral", {"sliding_window": WINDOW}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True, "rope_parameters": YARN}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    ("qwen3", {"head_dim": 16}),
    ("qwen3", {"tie_word_embeddings": True, "attention_bias": True, "head_dim": 8}),
    ("qwen3_moe", MOE | {"norm_topk_prob": True}),
    ("qwen3_moe", MOE | {"norm_topk_prob": False, "mlp_only_layers": [0]}),
    ("qwen3_moe", MOE | {"decoder_sparse_step": 2, "num_experts_per_tok": 6}),
    ("gemma2", GEMMA | {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 5.0}),
    ("gemma2", GEMMA | {"attn_logit_softcapping": None, "tie_word_embeddings": False}),
    ("gemma3_text", GEMMA | {"num_hidden_layers": 7}),
    ("gemma3_text", GEMMA | {"rope_parameters": GEMMA3_ROPES, "layer_types": ["sliding_attention", "full_attention"],
                             "num_hidden_layers": 2, "final_logit_softcapping": 3.0}),
    ("phi3", {}),
    ("phi3", {"rope_parameters": PHI3_PART, "hidden_size": 96, "sliding_window": WINDOW, "tie_word_embeddings": True}),
    ("smollm3", {"num_hidden_layers": 5}),
    ("smollm3", {"no_rope_layers": [0, 1, 0], "tie_word_embeddings": False, "attention_bias": True}),
    ("granite", GRANITE),
    ("granite", GRANITE | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    ("olmo2", {}),
    ("olmo2", {"num_key_value_heads": 6, "rope_parameters": YARN}),
]  # fmt: skip
NAMED = [f"{family}-{i}" for i, (family, _) in enumerate(FAMILIES)]


def make_model(family: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model in float32, norms and biases random too."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **(SHAPE | changes))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_((0 if family in ZERO_CENTRED else 1) + 0.2 * torch.randn_like(parameter))
            elif name.endswith("bias"):
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return model


def write_model(folder: Path, model: PreTrainedModel, *, shard_size: str | None = None) -> None:
    """Save a model as transformers does, with a tokenizer and a chat template."""
    model.save_pretrained(folder, **({} if shard_size is None else {"max_shard_size": shard_size}))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}))


# Rows of 256 numbers, in whole blocks, as K-quants need; few, so that a file is small.
IN_BLOCKS: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.06,
    "vocab_size": len(TOKENS),
    "eos_token_id": TOKENS.index("<|im_end|>"),
}
WIDE_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "norm_topk_prob": True}
# head_dim ** -0.5 is what GGUF files mean: they do not say query_pre_attn_scalar.
WIDE_GEMMA = {"head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": WINDOW}

# What each family that GGUF knows is tried with.
GGUF_FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"rope_parameters": LLAMA3}),
    ("mistral", {"sliding_window": None, "tie_word_embeddings": True}),
    ("qwen2", {"rope_parameters": YARN}),
    ("qwen2", {"rope_parameters": YARN | {"attention_factor": 1.6}}),
    ("qwen3", {"head_dim": 64, "tie_word_embeddings": True}),
    ("qwen3_moe", WIDE_MOE | {"head_dim": 64}),
    ("gemma2", WIDE_GEMMA | {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 5.0, "num_hidden_layers": 3}),
    ("gemma3_text", WIDE_GEMMA | {"rope_parameters": GEMMA3_ROPES, "num_hidden_layers": 7}),
    ("phi3", {"rope_parameters": PHI3_PART, "sliding_window": WINDOW}),
    ("smollm3", {"num_hidden_layers": 4}),
    ("granite", GRANITE),
    ("olmo2", {}),
]


def in_blocks(family: str, changes: dict[str, Any]) -> PreTrainedModel:
    """A model whose tensors every quantised type of GGUF can hold."""
    return make_model(family, **(IN_BLOCKS | changes))
