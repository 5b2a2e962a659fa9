"""Writes a transformers Llama as llama.cpp's converter does, with the gguf library."""

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
from transformers import LlamaForCausalLM

from tests.engine.tiny import TEMPLATE

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("in", "g")]
TOKENS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES), *SPECIALS]
_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """llama.cpp's name of one of transformers' tensors."""
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name == "lm_head.weight":
        return "output.weight"
    if name in whole:
        return whole[name]
    _, _, index, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{index}.{_NAMES[module]}.{kind}"


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp's order of the rows of q and k: the pairs that are rotated together are neighbours."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).transpose(1, 2).reshape(weight.shape)


def _heads(name: str, model: LlamaForCausalLM) -> int | None:
    if ".q_proj." in name:
        return int(model.config.num_attention_heads)
    return int(model.config.num_key_value_heads) if ".k_proj." in name else None


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    *,
    change: Callable[[GGUFWriter], None] = lambda _writer: None,
    pre: str = "smollm",
    architecture: str = "llama",
) -> None:
    """Write `model` in `kind` (vectors stay F32); afterwards `model` has the weights that the file holds."""
    c = model.config
    writer = GGUFWriter(str(path), architecture)
    writer.add_name("tiny")
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    types = [gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in TOKENS]
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(TOKENS.index("<|im_start|>"))
    writer.add_eos_token_id(TOKENS.index("<|im_end|>"))
    writer.add_chat_template(TEMPLATE)
    change(writer)
    for name, parameter in model.named_parameters():
        heads = _heads(name, model)
        stored = parameter.detach() if heads is None else interleaved(parameter.detach(), heads)
        _add(writer, gguf_name(name), stored, kind, parameter, heads)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(
    writer: GGUFWriter, name: str, stored: Tensor, kind: GGMLQuantizationType, parameter: Tensor, heads: int | None
) -> None:
    kind = kind if stored.dim() == 2 else GGMLQuantizationType.F32
    data = quantize(np.ascontiguousarray(stored.numpy()), kind)
    writer.add_tensor(name, data, raw_dtype=kind)
    lossy: Any = torch.from_numpy(np.array(dequantize(data, kind), dtype=np.float32)).view(stored.shape)
    if heads is not None:
        lossy = lossy.reshape(heads, parameter.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(stored.shape)
    with torch.no_grad():
        parameter.copy_(lossy)


def the_tokenizer() -> Tokenizer:
    """The tokenizer that the file describes, as its Hugging Face folder would have it."""
    fast = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(TOKENS)}, merges=MERGES))
    fast.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(SPECIALS)
    return fast
