"""Vocabularies of GGUF files. SentencePiece itself is the judge of its kind."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import sentencepiece
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from engine.model.weights.gguf import GgufFile
from engine.text.tokenizer import Tokenizer, from_gguf
from engine.text.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from engine.types import ModelFileError, UnsupportedModelError
from tests.engine.helpers import one_sentence

TEXT = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
LINES = [*TEXT.split("\n"), *["日本語を話す 你好世界 é à ü"] * 20]
WORDS = sorted(set(" ".join(LINES).split(" ")))


def trained(*, add_dummy_prefix: bool) -> sentencepiece.SentencePieceProcessor:
    """A SentencePiece model as Llama 2's (a mark before each text) or Gemma's (none) was made."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=900,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=add_dummy_prefix,
        remove_extra_whitespaces=False,
        user_defined_symbols=["<image>"],
        control_symbols=["<turn>"],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind(model: sentencepiece.SentencePieceProcessor, token: int) -> int:
    if model.is_unknown(token) or model.is_control(token):
        return UNKNOWN if model.is_unknown(token) else CONTROL
    if model.id_to_piece(token) == "<image>":
        return USER_DEFINED
    return BYTE if model.is_byte(token) else NORMAL


def write(path: Path, model: sentencepiece.SentencePieceProcessor, scores: int, prefix: bool) -> GgufFile:
    """The vocabulary as llama.cpp's converter writes it, with the first `scores` scores."""
    tokens = range(model.vocab_size())
    writer = GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([model.id_to_piece(token) for token in tokens])
    writer.add_token_types([kind(model, token) for token in tokens])
    writer.add_token_scores([model.get_score(token) for token in tokens][:scores])
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    if not prefix:
        writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufFile(path)


Pair = tuple[Tokenizer, sentencepiece.SentencePieceProcessor]


@pytest.fixture(scope="module", params=[True, False], ids=["mark-first", "no-mark"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    model = trained(add_dummy_prefix=request.param)
    path = tmp_path_factory.mktemp("vocabulary") / "m.gguf"
    return from_gguf(write(path, model, model.vocab_size(), request.param).tokenizer()), model


texts = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
    st.text(st.sampled_from("abc deéthin日本👍\n  x▁"), min_size=1, max_size=20),
    st.text(min_size=1, max_size=12),
)


@given(text=texts)
def test_sentence_piece_says_the_same(pair: Pair, text: str) -> None:
    ours, theirs = pair
    tokens = theirs.encode(text.replace("\0", ""))
    assert ours.encode_plain(text.replace("\0", "")) == tokens
    assert ours.decode(tokens) == theirs.decode(tokens)


def test_control_tokens_count_in_templates_and_not_in_texts(pair: Pair) -> None:
    ours, theirs = pair
    turn = theirs.piece_to_id("<turn>")
    assert ours.encode("<turn>the page")[0] == turn
    assert turn not in ours.encode_plain("<turn>the page")
    assert ours.encode_plain("<turn>the page") == theirs.encode("<turn>the page")
    assert theirs.piece_to_id("<image>") in ours.encode_plain("see <image> here")
    assert turn in ours.special_ids
    assert ours.decode([turn]) == ""


def test_a_text_begins_with_a_bos_where_the_file_does_not_say(pair: Pair) -> None:
    ours, theirs = pair
    assert ours.encode_start("the page") == [theirs.bos_id(), *theirs.encode("the page")]


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "m.gguf", trained(add_dummy_prefix=True), 899, prefix=True)
    with pytest.raises(ModelFileError, match="900 tokens, 900 types, 899 scores") as refused:
        from_gguf(file.tokenizer())
    one_sentence(refused.value)


def test_other_kinds_are_named(tmp_path: Path) -> None:
    writer = GGUFWriter(str(tmp_path / "m.gguf"), "llama")
    writer.add_tokenizer_model("t5")
    writer.add_token_list(["a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="'t5'") as refused:
        from_gguf(GgufFile(tmp_path / "m.gguf").tokenizer())
    one_sentence(refused.value)
