from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer

from engine.text.detokenizer import REPLACEMENT, Detokenizer
from engine.text.held import HeldText
from engine.text.tokenizer import Tokenizer
from tests.engine.tokenizers_for_tests import byte_level, byte_token, sentence_piece

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SAMPLES = ["👩‍👩‍👧‍👦", "日本語を話す", "né 👍🏽 ok", "�x", "𝕏🇨🇭", "a"]


def wrap(fast: FastTokenizer, *, bos: str | None = None, adds_bos: bool = False) -> Tokenizer:
    special = frozenset(i for i, token in fast.get_added_tokens_decoder().items() if token.special)
    return Tokenizer(fast, bos=fast.token_to_id(bos) if bos else None, special_ids=special, adds_bos=adds_bos)


PLAIN = wrap(byte_level(SPECIALS))
PARTS = tuple({s.encode()[i:j] for s in SAMPLES for i in range(30) for j in range(i + 2, i + 6)})
IN_PARTS = wrap(byte_level(SPECIALS, extra=tuple(p for p in PARTS if len(p) > 1)))


def stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


def check_stream(tokenizer: Tokenizer, ids: list[int]) -> None:
    """All deltas are the batch text, which may only have an incomplete tail more."""
    batch, deltas = tokenizer.decode(ids), stream(tokenizer, ids)
    streamed = "".join(deltas)
    assert batch.startswith(streamed)
    assert not batch[len(streamed) :].strip(REPLACEMENT)


# --- detokenizer ---


@given(st.lists(st.integers(0, PLAIN.vocab_size - 1), max_size=120))
def test_any_bytes_stream_as_they_decode(ids: list[int]) -> None:
    check_stream(PLAIN, ids)


@given(st.lists(st.integers(0, IN_PARTS.vocab_size + 3), max_size=60))
def test_any_tokens_stream_as_they_decode(ids: list[int]) -> None:
    check_stream(IN_PARTS, ids)


@given(st.sampled_from(SAMPLES), st.integers(0, 5**50))
def test_every_split_of_characters_streams_whole(sample: str, split: int) -> None:
    raw, ids, at = (sample * 2).encode(), [], 0
    for digit in range(50):
        length = 1 + split // 5**digit % 5
        token = IN_PARTS.token_id(byte_token(raw[at : at + length]))
        if token is None:
            token, length = IN_PARTS.token_id(byte_token(raw[at : at + 1])), 1
        if token is not None:
            ids.append(token)
            at += length
    whole = raw[:at].decode(errors="ignore")
    deltas = stream(IN_PARTS, ids)
    assert "".join(deltas) == whole
    assert sample.startswith(REPLACEMENT) or not any(REPLACEMENT in delta for delta in deltas)


def test_all_splits_of_one_emoji_sequence() -> None:
    raw = "👍🏽é".encode()  # 10 bytes, 512 splits
    parts = tuple(raw[i:j] for i in range(10) for j in range(i + 2, 11))
    tokenizer = wrap(byte_level(SPECIALS, extra=parts))
    for mask in range(2 ** (len(raw) - 1)):
        cuts = [0, *(i for i in range(1, len(raw)) if mask >> (i - 1) & 1), len(raw)]
        ids = [tokenizer.token_id(byte_token(raw[i:j])) for i, j in pairwise(cuts)]
        assert "".join(stream(tokenizer, [i for i in ids if i is not None])) == "👍🏽é"


def test_a_character_cut_off_at_the_end_is_dropped() -> None:
    ids = PLAIN.encode_plain("ok 👍")
    assert "".join(stream(PLAIN, ids[:-1])) == "ok "
    assert stream(PLAIN, ids)[-2] == "👍"


def test_text_is_shown_as_soon_as_it_is_whole() -> None:
    assert stream(PLAIN, PLAIN.encode_plain("hi é")) == ["h", "i", " ", "", "é", ""]


LLAMA2 = wrap(sentence_piece("prepend", ("<s>", "</s>"), "abc de"))


@given(st.text(st.sampled_from("ab 👩‍👩‍👧日本é"), max_size=40))
def test_byte_fallback_streams_whole_characters(text: str) -> None:
    ids = LLAMA2.encode_plain(text)
    deltas = stream(LLAMA2, ids)
    assert "".join(deltas) == LLAMA2.decode(ids) == text
    assert not any(REPLACEMENT in delta for delta in deltas)


# Kinds of SentencePiece vocabularies; characters in them may come as one token or as their bytes.
KNOWN = "ab 日本👩👧\u200d🏽"
PIECES = {kind: wrap(sentence_piece(kind, ("<s>", "</s>"), KNOWN)) for kind in ("prepend", "first", "always")}


@given(
    st.sampled_from(sorted(PIECES)),
    st.lists(st.sampled_from([*"ab 日本語é", "👩‍👩‍👧", "👍🏽", "🇨🇭", "\u200d"]), max_size=12).map("".join),
    st.integers(0, 2**60),
)
def test_every_split_into_characters_and_bytes_streams_whole(kind: str, text: str, split: int) -> None:
    tokenizer, ids = PIECES[kind], list[int]()
    for number, character in enumerate(text):
        whole = tokenizer.token_id("▁" if character == " " else character)
        if whole is not None and split >> number % 60 & 1:
            ids.append(whole)
            continue
        parts = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in character.encode()]
        ids += [part for part in parts if part is not None]
    deltas = stream(tokenizer, ids)
    assert "".join(deltas) == tokenizer.decode(ids)
    assert tokenizer.decode(ids) in (text, text.removeprefix(" "))
    assert not any(REPLACEMENT in delta for delta in deltas)


@given(st.lists(st.integers(0, LLAMA2.vocab_size - 1), max_size=80))
def test_broken_fallback_bytes_do_not_swallow_what_follows(ids: list[int]) -> None:
    a = LLAMA2.token_id("a")
    assert a is not None
    assert "".join(stream(LLAMA2, [*ids, *[a] * 30])).endswith("a" * 30)


# --- stop strings ---


def cut_at_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """By definition: the shortest beginning that ends with a stop string, without it."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


@example("xabcx", ["abc", "b"], [])
@example("xabcx", ["abc", "b"], [1, 2, 3, 4])
@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    st.lists(st.integers(0, 30), max_size=30),
)
def test_streamed_text_is_the_text_before_the_first_stop(text: str, stops: list[str], cuts: list[int]) -> None:
    held = HeldText((*stops, ""))
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown = "".join(held.push(text[i:j]) for i, j in pairwise(edges)) + held.flush()
    assert (shown, held.stopped) == cut_at_first_stop(text, stops)
    assert held.shown == shown
    if held.stopped:
        assert held.push("more") == held.flush() == ""


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4))
def test_only_what_may_become_a_stop_is_held_back(text: str, stops: list[str]) -> None:
    held, shown = HeldText(tuple(stops)), ""
    for character in text:
        shown += held.push(character)
        if held.stopped:
            return
    rest = text[len(shown) :]
    assert not rest or any(stop.startswith(rest) for stop in stops)


# --- banned strings ---

banned_strings = st.lists(st.text("abAB", min_size=1, max_size=4), min_size=1, max_size=4)
token_texts = st.lists(st.text("abAB", max_size=3), max_size=40)


@example(["ab", "xy"], ["bxyR", "xR"], ["abQ"], 0)
@example(["x", " shi", "ver"], ["shiver"], [], 0)
@given(
    st.lists(st.text("abxR", max_size=3), max_size=30),
    st.lists(st.text("abxyR", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text("abxQ", min_size=1, max_size=4), max_size=2),
    st.integers(0, 2**30),
)
def test_nothing_of_a_banned_string_is_shown(
    tokens: list[str], banned: list[str], stops: list[str], choices: int
) -> None:
    """Whatever is written, taken back and written instead: shown text stays, and is that of the tokens that stayed."""
    held, kept, shown = HeldText(tuple(stops), tuple(banned)), list[str](), ""
    for token in tokens:
        kept.append(token)
        shown += held.push(token)
        if held.stopped:
            break
        if held.banned_from is not None:
            choices, last = choices // 2, choices % 2 == 1
            keep = len(kept) - 1 if last else held.banned_from
            assert "".join(kept[: held.banned_from]).startswith(shown)
            held.take_back(keep)
            del kept[keep:]
        assert "".join(kept).startswith(shown)
        assert not any(string.lower() in "".join(kept).lower() for string in banned)
    shown += held.flush()
    assert held.shown == shown
    assert shown == cut_at_first_stop("".join(kept), stops)[0]
    assert not any(string.lower() in shown.lower() for string in banned)


@given(token_texts, banned_strings)
def test_the_token_that_began_it_is_named(tokens: list[str], banned: list[str]) -> None:
    held = HeldText((), tuple(banned))
    for number, token in enumerate(tokens):
        held.push(token)
        if held.banned_from is not None:
            folded = "".join(tokens[: number + 1]).lower()
            hits = [(at + len(s), at) for s in banned if (at := folded.find(s.lower())) >= 0]
            start = min(hits)[1]
            before, began = "".join(tokens[: held.banned_from]), "".join(tokens[: held.banned_from + 1])
            assert len(before) <= start < len(began)
            return


def test_letters_of_any_case_and_length_are_banned() -> None:
    for text in ("As An AI", "as an ai"):
        held = HeldText((), ("as an ai",))
        held.push("İß ")
        held.push(text)
        assert held.banned_from == 1
    held = HeldText((), ("STRASSE",))
    assert held.push("straße") + held.flush() == "straße"


# --- plain text ---

FRAGMENTS = [*SPECIALS, "<|", "im_start", "|>", "<", "|", "im_", "a", " ", "\n", "é", "👩‍👧"]
fragment_texts = st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), st.text(max_size=30))


@given(fragment_texts)
def test_a_persons_text_is_never_a_special_token(text: str) -> None:
    ids = PLAIN.encode_plain(text)
    assert PLAIN.special_ids.isdisjoint(ids)
    assert PLAIN.decode(ids) == text


@given(fragment_texts)
def test_only_the_template_writes_special_tokens(text: str) -> None:
    ids = PLAIN.encode_message("<|im_start|>user\n", text, "<|im_end|>\n")
    assert [i for i in ids if i in PLAIN.special_ids] == [PLAIN.token_id("<|im_start|>"), PLAIN.token_id("<|im_end|>")]
    assert PLAIN.decode(ids) == f"user\n{text}\n"


def test_special_tokens_count_again_afterwards() -> None:
    PLAIN.encode_plain("<|im_start|>")
    assert PLAIN.encode("<|im_start|>") == [PLAIN.token_id("<|im_start|>")]
