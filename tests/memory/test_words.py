from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.words import content_terms, fold, query_terms, stem, tokens, unspaced_share


@given(st.text())
def test_query_terms_of_a_text_are_among_its_index_terms(text: str) -> None:
    assert set(query_terms(text)) <= set(tokens(text))


@given(st.text())
def test_tokens_hold_no_white_space_and_do_not_depend_on_case_folding_twice(text: str) -> None:
    assert all(token and not any(character.isspace() for character in token) for token in tokens(text))
    assert fold(fold(text)) == fold(fold(fold(text)))


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1))
def test_stem_shortens_and_never_empties(word: str) -> None:
    assert 0 < len(stem(word)) <= len(word) + 1


def test_forms_of_a_word_meet() -> None:
    assert stem("moving") == stem("moved") == stem("moves") == stem("move")
    assert stem("cities") == stem("city")
    assert tokens("Café") == tokens("cafe") == tokens("ＣＡＦＥ")


def test_identifiers_are_found_by_their_parts() -> None:
    assert tokens("parseConfigFile") == tokens("parse_config_file") == tokens("parse config file")


def test_chinese_becomes_bigrams_and_single_characters() -> None:
    assert {"显", "存", "显存"} <= set(tokens("显存"))
    assert query_terms("显存不足") == ["显存", "存不", "不足"]


def test_thai_and_japanese_are_cut_too() -> None:
    assert len(tokens("สวัสดีครับ")) > 5
    assert "図書" in tokens("図書館へ行く")


def test_questions_without_content() -> None:
    assert content_terms("what is it?") == []
    assert content_terms("显存是多少") == ["显存"]


def test_script_share() -> None:
    assert unspaced_share("What is the size?") == 0.0
    assert unspaced_share("显存是多少") == 1.0
    assert 0.0 < unspaced_share("GPU 的显存是多少") < 1.0
