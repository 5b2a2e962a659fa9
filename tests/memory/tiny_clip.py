"""A CLIP model of a few thousand weights, which learns in a second what colour a picture has."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from PIL import Image
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

COLOURS = {"red": (220, 30, 30), "green": (30, 170, 60), "blue": (40, 60, 220), "yellow": (235, 220, 40)}
_SIDE, _WIDTH = 32, 32
_CAPTIONS = ("a {} chart", "{}", "the screenshot with the {} chart", "{} chart")


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (160, 120)) -> Image.Image:
    """A plain picture of one colour."""
    return Image.new("RGB", size, colour)


def write_clip(folder: Path, width: int = _WIDTH) -> Path:
    """A sentence-transformers folder of the model; `width` numbers a vector."""
    torch.manual_seed(5)
    torch.set_num_threads(1)
    parts = folder / "0_CLIPModel"
    parts.mkdir(parents=True)
    tokenizer = _tokenizer(parts)
    processor = CLIPProcessor(
        CLIPImageProcessor(size={"shortest_edge": _SIDE}, crop_size={"height": _SIDE, "width": _SIDE}), tokenizer
    )
    layer = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = CLIPModel(
        CLIPConfig(
            text_config={**layer, **ends, "vocab_size": len(tokenizer), "max_position_embeddings": 77},
            vision_config={**layer, "image_size": _SIDE, "patch_size": 16},
            projection_dim=width,
        )
    )
    _train(model, processor)
    model.eval().save_pretrained(parts)
    processor.save_pretrained(parts)
    modules = [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def _tokenizer(folder: Path) -> CLIPTokenizer:
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.,?-"]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)


@torch.enable_grad()
def _train(model: CLIPModel, processor: CLIPProcessor) -> None:
    names = list(COLOURS)
    images = processor(images=[picture(COLOURS[name]) for name in names], return_tensors="pt")["pixel_values"]
    neutral = processor.tokenizer(["a picture", "a photo"], return_tensors="pt", padding=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    target = torch.arange(len(names))
    for step in range(160):
        caption = _CAPTIONS[step % len(_CAPTIONS)]
        texts = processor.tokenizer([caption.format(n) for n in names], return_tensors="pt", padding=True)
        out = model(pixel_values=images, **texts)
        logits = 20 * out.image_embeds @ out.text_embeds.T
        plain = torch.nn.functional.normalize(model.get_text_features(**neutral).pooler_output, dim=-1)
        away = (out.image_embeds @ plain.T).square().mean()
        loss = torch.nn.functional.cross_entropy(logits, target) + torch.nn.functional.cross_entropy(logits.T, target)
        optimizer.zero_grad()
        (loss + away).backward()
        optimizer.step()
