"""Another embedder takes over: a tiny one, made here, of other dimension."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from memory import Memory
from memory.embed import Embedder, Vectors
from memory.types import Message, Progress

Turns = Callable[..., list[Message]]
WORDS = ("the", "ferry", "leaves", "at", "noon", "dog", "is", "called", "biscuit", "my", "what", "a", "lovely", "name")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *"abcdefghijklmnopqrstuvwxyz0123456789"]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder / "bert")
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"), max_seq_length=256)
    SentenceTransformer(modules=[transformer, Pooling(64)], device="cpu").save(str(folder / "model"))
    return folder / "model"


def test_the_vectors_are_made_anew_while_search_goes_by_words(
    tmp_path: Path, embedder_folder: Path, tiny: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "memory"
    with_first = Memory.open(folder, embedder_folder, threads=1)
    with_first.remember(turns(["The ferry leaves at noon.", "Noted.", "My dog is called Biscuit.", "A lovely name!"]))
    assert with_first.wait_until_indexed(240)
    assert with_first.search("ferry")[0].dense > 0
    with_first.close()

    searched, steps = threading.Event(), list[Progress]()
    embed = Embedder.passages

    def held(self: Embedder, texts: Sequence[str]) -> Iterator[Vectors]:
        assert searched.wait(120)
        yield from embed(self, texts)

    monkeypatch.setattr(Embedder, "passages", held)
    second = Memory.open(folder, tiny, on_progress=steps.append, threads=1)
    assert second.wait_until_open()
    assert second.counts().unindexed == 4
    (hit, *_) = second.search("dog biscuit")
    assert (hit.passage.text, hit.dense) == ("My dog is called Biscuit.", 0.0)
    searched.set()
    assert second.wait_until_indexed(240)
    assert (second.counts().unindexed, second.counts().problem) == (0, "")
    assert steps[-1] == Progress("embed", 4, 4)
    assert second.search("dog biscuit")[0].passage.text == "My dog is called Biscuit."
    second.close()

    steps.clear()
    again = Memory.open(folder, tiny, on_progress=steps.append, threads=1)
    assert again.wait_until_indexed(240)
    assert not steps
    again.close()
