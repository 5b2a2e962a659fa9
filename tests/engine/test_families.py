"""Model files of every form that is read, against transformers; and those that are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, RopeScalingType
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, LlamaForCausalLM

from engine.model.load import load_model
from engine.runner import EagerRunner
from engine.types import EngineError, ModelFileError, UnsupportedModelError
from engine.window import WindowShape
from tests.engine.gguf_files import TOKENS, the_tokenizer, write_gguf
from tests.engine.helpers import make_pages, make_session, one_sentence, run_all
from tests.engine.judge import check_against, load
from tests.engine.tiny import CPU, write_llama

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


# --- Hugging Face folders ---


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": True},
        {"tie_word_embeddings": False},
        {"num_key_value_heads": 6},
        {"num_key_value_heads": 1},
        {"head_dim": 16},
        {"attention_bias": True, "mlp_bias": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
        {"rope_parameters": LLAMA3},
        {"rms_norm_eps": 1e-2},
    ],
    ids=str,
)
def test_a_folder_is_what_transformers_reads(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = write_llama(tmp_path, seed=1, **changes)
    check_against(load(tmp_path), theirs)


def test_shards(tmp_path: Path) -> None:
    theirs = write_llama(tmp_path, shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    seen: list[tuple[int, int]] = []
    ours = load_model(tmp_path, device=CPU, dtype=torch.float32, on_layer=lambda a, b: seen.append((a, b)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    check_against(ours, theirs)


def test_the_configuration_that_transformers_4_wrote(tmp_path: Path) -> None:
    theirs = write_llama(tmp_path, rope_parameters=LLAMA3)
    config = json.loads((tmp_path / "config.json").read_text())
    scaling = {key: value for key, value in config.pop("rope_parameters").items() if key != "rope_theta"}
    old = config | {"rope_theta": LLAMA3["rope_theta"], "rope_scaling": scaling}
    del old["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps(old))
    check_against(load(tmp_path), theirs)


def test_stop_ids_and_tokens_of_a_folder(tmp_path: Path) -> None:
    write_llama(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 258]}))
    ours = load(tmp_path)
    assert ours.stop_ids == {5, 256, 258}
    assert ours.tokenizer.eos == 258
    assert ours.template.answer.after == "<|im_end|>\n"


@pytest.mark.parametrize("where", ["file", "list"])
def test_where_a_template_may_stand(tmp_path: Path, where: str) -> None:
    write_llama(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    source = config.pop("chat_template").replace("<|im_start|>", "<|endoftext|>")
    if where == "file":
        (tmp_path / "chat_template.jinja").write_text(source)
    else:
        config["chat_template"] = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": source}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load(tmp_path).template.generation == "<|endoftext|>assistant\n"


# --- GGUF files ---

# Rows of 32 numbers at least, in whole blocks, as every quantised type here needs.
IN_BLOCKS: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": len(TOKENS),
    "eos_token_id": TOKENS.index("<|im_end|>"),
}


def llama_in_blocks(folder: Path, **changes: Any) -> LlamaForCausalLM:
    folder.mkdir(exist_ok=True)
    return write_llama(folder, seed=2, **(IN_BLOCKS | changes))


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_1], ids=str)
def test_a_gguf_file_holds_these_weights(tmp_path: Path, kind: Kind) -> None:
    theirs = llama_in_blocks(tmp_path / "hf")
    write_gguf(tmp_path / "m.gguf", theirs, kind)
    check_against(load(tmp_path / "m.gguf"), theirs)


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": True},
        {"head_dim": 32},
        {"num_key_value_heads": 4},
        {"attention_bias": True, "mlp_bias": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 77777.0}},
    ],
    ids=str,
)
def test_shapes_of_gguf_files(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = llama_in_blocks(tmp_path / "hf", **changes)
    write_gguf(tmp_path / "m.gguf", theirs, Kind.Q8_0)
    check_against(load(tmp_path / "m.gguf"), theirs)


def test_llama3_frequencies_of_a_gguf_file(tmp_path: Path) -> None:
    theirs = llama_in_blocks(tmp_path / "hf", rope_parameters=LLAMA3)
    write_gguf(tmp_path / "m.gguf", theirs)
    check_against(load(tmp_path / "m.gguf"), theirs)


def test_linear_scaling_of_a_gguf_file(tmp_path: Path) -> None:
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    theirs = llama_in_blocks(tmp_path / "hf", rope_parameters=linear)
    write_gguf(tmp_path / "m.gguf", theirs)
    check_against(load(tmp_path / "m.gguf"), theirs)


def test_the_tokenizer_of_a_gguf_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", llama_in_blocks(tmp_path / "hf"))
    ours, theirs = load(tmp_path / "m.gguf"), the_tokenizer()
    for text in ["the thing in the ring", "<|im_start|>user\nhé 日本 12345<|im_end|>\n", "a\n\n  b\t", "🇨🇭👍🏽"]:
        assert ours.tokenizer.encode(text) == theirs.encode(text).ids
        assert ours.tokenizer.decode(ours.tokenizer.encode_plain(text)) == text
    assert ours.tokenizer.bos == TOKENS.index("<|im_start|>")
    assert ours.stop_ids == {TOKENS.index("<|im_end|>"), TOKENS.index("<|endoftext|>")}


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "dbrx", "smaug-bpe", "tekken"])
def test_how_a_gguf_file_splits_text(tmp_path: Path, pre: str) -> None:
    write_gguf(tmp_path / "m.gguf", llama_in_blocks(tmp_path / "hf", num_hidden_layers=1), pre=pre)
    split = load(tmp_path / "m.gguf").tokenizer._fast.pre_tokenizer.pre_tokenize_str
    wanted = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf").backend_tokenizer.pre_tokenizer
    for text in [
        "It's 12345.5 things, aren't THEY'LL?",
        "camelCase HTTPServer/x\n\n  y\t",
        "Żółć 日本語 ١٢٣٤ e\u0301  ",
    ]:
        assert split(text) == wanted.pre_tokenize_str(text)


def test_a_bos_that_the_file_asks_for(tmp_path: Path) -> None:
    theirs = llama_in_blocks(tmp_path / "hf")
    bos = TOKENS.index("<|im_start|>")
    for add, text, want in [(True, "a", 1), (True, "<|im_start|>a", 1), (False, "a", 0)]:
        write_gguf(tmp_path / "m.gguf", theirs, change=lambda w, add=add: w.add_add_bos_token(add))
        assert load(tmp_path / "m.gguf").tokenizer.encode_start(text).count(bos) == want


# --- refused ---


def change_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(config))

    return change


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def overwrite(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def shorten(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def lose_a_tensor(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors")


LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "long_factor": [1.0] * 4, "short_factor": [1.0] * 4}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
BAD_FOLDERS: dict[str, tuple[Callable[[Path], None], type[EngineError], str]] = {
    "another family": (change_config(model_type="mamba"), UnsupportedModelError, "mamba"),
    "another activation": (change_config(hidden_act="gelu"), UnsupportedModelError, "gelu"),
    "longrope": (change_config(rope_parameters=LONGROPE), UnsupportedModelError, "longrope"),
    "dynamic": (change_config(rope_parameters=DYNAMIC), UnsupportedModelError, "dynamic"),
    "longrope by another name": (
        change_config(rope_parameters=LONGROPE | {"rope_type": "su"}, model_type="phi3"),
        UnsupportedModelError,
        "longrope",
    ),
    "an odd part of a head rotated": (change_config(partial_rotary_factor=0.4), UnsupportedModelError, "3 of"),
    "an embedder": (
        change_config(model_type="gemma3_text", use_bidirectional_attention=True),
        UnsupportedModelError,
        "use_bidirectional_attention",
    ),
    "no experts": (change_config(model_type="qwen3_moe", num_experts=2), ModelFileError, "8 of its 2"),
    "a field of the wrong kind": (change_config(hidden_size="big"), ModelFileError, "config.json"),
    "heads that do not divide": (change_config(num_key_value_heads=4), UnsupportedModelError, "6"),
    "sizes that do not fit": (change_config(intermediate_size=100), ModelFileError, "100"),
    "no tokenizer": (without("tokenizer.json"), ModelFileError, "tokenizer.json"),
    "a broken tokenizer": (overwrite("tokenizer.json", "{}"), ModelFileError, "tokenizer.json"),
    "no configuration": (without("config.json"), ModelFileError, "config.json"),
    "a broken configuration": (overwrite("config.json", "{'a'"), ModelFileError, "config.json"),
    "a list as configuration": (overwrite("config.json", "[]"), ModelFileError, "config.json"),
    "no weights": (without("model.safetensors"), ModelFileError, "safetensors"),
    "shortened weights": (shorten, ModelFileError, "model.safetensors"),
    "no header": (overwrite("model.safetensors", "x"), ModelFileError, "model.safetensors"),
    "a lost tensor": (lose_a_tensor, ModelFileError, "model.layers.1.mlp.up_proj.weight"),
    "an index of nothing": (overwrite("model.safetensors.index.json", "{}"), ModelFileError, "weight_map"),
}


@pytest.mark.parametrize(("spoil", "error", "word"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
def test_a_bad_folder_costs_one_sentence(
    tmp_path: Path, spoil: Callable[[Path], None], error: type[EngineError], word: str
) -> None:
    write_llama(tmp_path)
    spoil(tmp_path)
    with pytest.raises(error) as refused:
        load(tmp_path)
    assert word in one_sentence(refused.value)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_llama(tmp_path, shard_size="60KB")
    lost = sorted(tmp_path.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(ModelFileError) as refused:
        load(tmp_path)
    assert lost.name in one_sentence(refused.value)


@pytest.mark.parametrize("name", ["nothing.gguf", "nothing", "model.bin"])
def test_what_is_no_model_is_refused(tmp_path: Path, name: str) -> None:
    if name == "model.bin":
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ModelFileError) as refused:
        load(tmp_path / name)
    assert name in one_sentence(refused.value)


@pytest.fixture(scope="module")
def whole_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("gguf")
    write_gguf(folder / "m.gguf", llama_in_blocks(folder / "hf", num_hidden_layers=1), Kind.Q8_0)
    return (folder / "m.gguf").read_bytes()


def test_a_gguf_file_cut_off_anywhere_is_refused(tmp_path: Path, whole_gguf: bytes) -> None:
    path = tmp_path / "m.gguf"
    rng = random.Random(0)
    for length in [0, 1, 4, 8, 23, 24, 25, *(rng.randrange(len(whole_gguf) - 64) for _ in range(60))]:
        path.write_bytes(whole_gguf[:length])
        with pytest.raises(ModelFileError) as refused:
            load(path)
        assert "m.gguf" in one_sentence(refused.value)


def test_a_damaged_gguf_header_never_leaks_another_error(tmp_path: Path, whole_gguf: bytes) -> None:
    path, rng = tmp_path / "m.gguf", random.Random(1)
    for _ in range(150):
        spoilt = bytearray(whole_gguf)
        spoilt[rng.randrange(9000)] ^= 1 << rng.randrange(8)
        path.write_bytes(spoilt)
        try:
            load(path)
        except EngineError as error:
            one_sentence(error)


def test_a_gguf_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUP" + bytes(500))
    with pytest.raises(ModelFileError) as refused:
        load(tmp_path / "m.gguf")
    assert "m.gguf" in one_sentence(refused.value)


def longrope(writer: GGUFWriter) -> None:
    writer.add_rope_scaling_type(RopeScalingType.LONGROPE)


BAD_GGUFS: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "another family": ({"architecture": "gemma"}, UnsupportedModelError, "gemma"),
    "an unknown pre-tokenizer": ({"pre": "klingon"}, UnsupportedModelError, "klingon"),
    "longrope": ({"change": longrope}, UnsupportedModelError, "longrope"),
    "experts": ({"change": lambda w: w.add_expert_count(8)}, UnsupportedModelError, "experts"),
}


@pytest.mark.parametrize(("how", "error", "word"), BAD_GGUFS.values(), ids=BAD_GGUFS)
def test_a_gguf_file_that_is_not_run(tmp_path: Path, how: dict[str, Any], error: type[EngineError], word: str) -> None:
    write_gguf(tmp_path / "m.gguf", llama_in_blocks(tmp_path / "hf", num_hidden_layers=1), **how)
    with pytest.raises(error) as refused:
        load(tmp_path / "m.gguf")
    assert word in one_sentence(refused.value)


# --- types ---


def test_bfloat16_is_float32_but_for_rounding(tmp_path: Path) -> None:
    theirs = write_llama(tmp_path)
    ours = load_model(tmp_path, device=CPU, dtype=torch.bfloat16)
    tokens = [random.Random(4).randrange(250) for _ in range(80)]
    pages = make_pages(ours, 6, 16)
    session = make_session(pages, WindowShape(16, 9, 5), tokens, [("m", tokens[9:])])
    got = run_all(EagerRunner(ours.decoder, pages, CPU), pages, [session], 7)[session.id]
    with torch.no_grad():
        want = theirs(torch.tensor([tokens])).logits[0]
    for t, logits in got.items():
        assert logits.dtype is torch.float32
        assert float((logits - want[t]).norm() / want[t].norm()) < 0.05
