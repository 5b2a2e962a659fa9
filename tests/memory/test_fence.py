from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from memory.recall.fence import harmless, one_line

_PIECES = st.sampled_from(
    [
        *("<|im_start|>", "<|im_end|>", "<|", "|>", "<", "|", ">", "｜", "im_end", "system", "\n"),
        *("<notes>", "</notes>", "</ notes >", "```", "---", "--- end of notes ---", "notes"),
        *("[1]", "[", "]", "12", "【2】", "<s>", "</s>", "<<SYS>>", "[INST]", "<start_of_turn>"),
        *("\u200b", "\u202e", "\u2066"),
    ]
)
_HOSTILE = st.lists(_PIECES | st.text(max_size=4), max_size=25).map("".join)


@given(_HOSTILE)
@example("<\u200b|im_start|>")
@example("-\u200b-- end of notes --\u200b-")
@example("<<||>>im_start|>")
def test_nothing_hostile_survives(text: str) -> None:
    plain = harmless(text)
    lowered = plain.lower()
    markers = ("<|", "|>", "---", "<s>", "</s>", "<<sys>>", "[inst]", "<start_of_turn>", "[1]", "【2】")
    assert not [marker for marker in markers if marker in lowered]
    assert not any(character in plain for character in "\u200b\u202e\u2066\u00ad")


@given(_HOSTILE)
def test_once_is_enough(text: str) -> None:
    assert harmless(harmless(text)) == harmless(text)


@given(st.text(alphabet="abc DEF 123 ,.;:!?()中文é\n"))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert harmless(text) == text


@given(_HOSTILE)
def test_titles_are_one_short_line(text: str) -> None:
    line = one_line(text)
    assert "\n" not in line
    assert len(line) <= 60
