"""Tiny random models written by transformers, with a real byte-level BPE tokenizer and a ChatML template."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from engine.model.load import LoadedModel

CPU = torch.device("cpu")

TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Tiny:
    """One tiny model, in transformers and in ours."""

    folder: Path
    theirs: PreTrainedModel
    ours: LoadedModel


def byte_tokenizer() -> Tokenizer:
    """Every byte is a token (256), and three special tokens follow: text of any script costs its UTF-8 length."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    fast.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    return fast


def write_llama(folder: Path, *, seed: int = 0, shard_size: str | None = None, **changes: Any) -> LlamaForCausalLM:
    """A random Llama saved by transformers into `folder`; returns it in float32."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": 259,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": 256,
        "eos_token_id": 258,
        "initializer_range": 0.15,
    }
    model = LlamaForCausalLM(LlamaConfig(**(shape | changes))).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
            elif name.endswith("bias"):
                parameter.copy_(0.2 * torch.randn_like(parameter))
    options = {} if shard_size is None else {"max_shard_size": shard_size}
    model.save_pretrained(folder, **options)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}))
    return model
