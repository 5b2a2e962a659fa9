"""Chats put together from pieces, against the template's and the tokenizer's own work on the whole chat."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast

from engine.text.template import CHATML, ChatTemplate, Piece
from engine.text.tokenizer import Tokenizer
from engine.types import UnsupportedModelError
from tests.engine.helpers import one_sentence
from tests.engine.templates import BROKEN, REWRITING, STYLES, Style
from tests.engine.tokenizers_for_tests import byte_level, sentence_piece

Chat = list[tuple[str, str]]
styles = pytest.mark.parametrize("name", STYLES)


def chats_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Chat]:
    """Three turns. Questions are trimmed and not empty: Llama 2's template trims the first one's end only, and with
    an empty one the system prompt's end too."""
    question = texts.map(lambda text: text.strip() or "?")
    turns = [("system", texts), *[("user", question), ("assistant", texts)] * 2, ("user", question)]
    return st.tuples(*(text for _, text in turns)).map(
        lambda drawn: [(role, text) for (role, _), text in zip(turns, drawn, strict=True)]
    )


chats = chats_of(st.text(max_size=12))
words = chats_of(st.text(st.sampled_from("ab c\n é"), max_size=10))


def theirs(style: Style, fast: FastTokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, chat_template=style.source, bos_token=style.bos, eos_token=style.eos
    )


def rendered(tokenizer: PreTrainedTokenizerFast, chat: Chat) -> str:
    wire = [{"role": role, "content": text} for role, text in chat]
    return str(tokenizer.apply_chat_template(wire, tokenize=False, add_generation_prompt=chat[-1][0] == "user"))


def pieces(template: ChatTemplate, chat: Chat) -> list[tuple[Piece, str]]:
    users = [i for i, (role, _) in enumerate(chat) if role == "user"]
    return [
        (template.user(first=i == users[0]) if role == "user" else template.answer, template.content(text))
        for i, (role, text) in enumerate(chat)
        if role != "system"
    ]


RENDERERS = {name: theirs(style, byte_level(style.specials)) for name, style in STYLES.items()}
TEMPLATES = {name: ChatTemplate(style.source, bos=style.bos, eos=style.eos) for name, style in STYLES.items()}


@styles
@settings(max_examples=50)
@given(chat=chats)
def test_pieces_are_the_templates_own_rendering(name: str, chat: Chat) -> None:
    template = TEMPLATES[name]
    whole = template.system_prompt(chat[0][1])
    for piece, text in pieces(template, chat):
        whole += piece.before + text + piece.after
    assert whole + template.generation == rendered(RENDERERS[name], chat)


@styles
def test_each_turn_only_adds(name: str) -> None:
    template = TEMPLATES[name]
    chat = [("system", "s"), ("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")]
    chat.append(("user", "five"))
    so_far = template.system_prompt("s")
    for piece, text in pieces(template, chat):
        asked = so_far + (template.generation if piece == template.answer else piece.before)
        so_far += piece.before + text + piece.after
        assert so_far.startswith(asked.rstrip())
    assert so_far + template.generation == rendered(RENDERERS[name], chat)


def ours(style: Style, fast: FastTokenizer) -> Tokenizer:
    special = frozenset(i for i, token in fast.get_added_tokens_decoder().items() if token.special)
    return Tokenizer(fast, bos=fast.token_to_id(style.bos), special_ids=special, adds_bos=style.adds_bos)


def appended(tokenizer: Tokenizer, template: ChatTemplate, chat: Chat) -> list[int]:
    ids = tokenizer.encode_start(template.system_prompt(chat[0][1]))
    for piece, text in pieces(template, chat):
        ids += tokenizer.encode_message(piece.before, text, piece.after)
    return ids + tokenizer.encode(template.generation)


def at_once(style: Style, fast: FastTokenizer, text: str) -> list[int]:
    ids = list(fast.encode(text, add_special_tokens=False).ids)
    return [fast.token_to_id(style.bos), *ids] if style.adds_bos else ids


@styles
@settings(max_examples=40)
@given(chat=words)
def test_tokens_of_the_pieces_are_those_of_the_whole(name: str, chat: Chat) -> None:
    style, template = STYLES[name], TEMPLATES[name]
    fast = byte_level(style.specials)
    assert appended(ours(style, fast), template, chat) == at_once(style, fast, rendered(RENDERERS[name], chat))


@pytest.mark.parametrize("kind", ["prepend", "first", "always"])
@pytest.mark.parametrize("name", ["zephyr", "llama2"])
@settings(max_examples=40)
@given(chat=words)
def test_no_space_appears_between_pieces(name: str, kind: str, chat: Chat) -> None:
    style, template = STYLES[name], TEMPLATES[name]
    whole = rendered(RENDERERS[name], chat)
    fast = sentence_piece(kind, style.specials, "abcdefghijklmnopqrstuvwxyzINSTY[]/<>|é")
    got, want = appended(ours(style, fast), template, chat), at_once(style, fast, whole)
    assert fast.decode(got, skip_special_tokens=False) == fast.decode(want, skip_special_tokens=False)


@styles
def test_exactly_one_bos(name: str) -> None:
    style = STYLES[name]
    tokenizer, template = ours(style, byte_level(style.specials)), TEMPLATES[name]
    ids = tokenizer.encode_start(template.system_prompt("Be brief."))
    assert ids[0] == tokenizer.bos
    assert ids[1] != tokenizer.bos
    assert ids.count(ids[0]) == 1
    if style.adds_bos:
        assert tokenizer.encode_start(style.bos + "x")[:2] == [tokenizer.bos, *tokenizer.encode_plain("x")]


def test_a_session_without_any_text_still_begins_with_the_bos() -> None:
    style = STYLES["llama3"]
    tokenizer = ours(style, byte_level(style.specials))
    assert tokenizer.encode_start("") == [tokenizer.bos]


def test_texts_are_trimmed_where_the_template_trims() -> None:
    assert {name: TEMPLATES[name].content(" x\n") for name in STYLES} == {
        "chatml": " x\n",
        "llama3": "x",
        "zephyr": " x\n",
        "qwen3": " x\n",
        "smollm3": " x\n",
        "llama2": "x",
    }


def test_no_template_is_chatml() -> None:
    assert ChatTemplate(None).system_prompt("s") == ChatTemplate(CHATML).system_prompt("s")


def test_the_date_of_today_is_written_where_a_template_asks_for_it() -> None:
    source = "{{ strftime_now('%Y') }}" + CHATML
    assert ChatTemplate(source).system_prompt("s")[:2] == "20"


@pytest.mark.parametrize("source", REWRITING.values(), ids=REWRITING)
def test_a_template_that_rewrites_is_refused(source: str) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        ChatTemplate(source)
    assert "template" in one_sentence(refused.value)


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_a_broken_template_is_refused(source: str) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        ChatTemplate(source)
    assert "template" in one_sentence(refused.value)


# --- thinking ---

SWITCHED = ("qwen3", "smollm3")


def test_templates_with_a_thinking_switch_are_known() -> None:
    assert {name for name in STYLES if TEMPLATES[name].switches_thinking} == set(SWITCHED)
    assert ChatTemplate(CHATML + "{% if thinking %}{% endif %}").switches_thinking
    plain = TEMPLATES["chatml"]
    assert plain.with_thinking(False) is plain


@pytest.mark.parametrize("name", SWITCHED)
@pytest.mark.parametrize("on", [True, False])
@settings(max_examples=30)
@given(chat=chats)
def test_the_switch_is_the_templates_own(name: str, on: bool, chat: Chat) -> None:
    template = TEMPLATES[name].with_thinking(on)
    whole = template.system_prompt(chat[0][1])
    for piece, text in pieces(template, chat):
        whole += piece.before + text + piece.after
    wire = [{"role": role, "content": text} for role, text in chat]
    want = RENDERERS[name].apply_chat_template(wire, tokenize=False, add_generation_prompt=True, enable_thinking=on)
    assert whole + template.generation == want
    assert ("<think>" in template.generation) == (not on)


def test_set_twice_the_last_counts() -> None:
    template = TEMPLATES["qwen3"]
    assert template.with_thinking(False).with_thinking(True).generation == template.generation
