from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.store.types import MessageStatus

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Ein Café in München hat um 7 geöffnet.",
    "东京塔高三百三十三米，是著名的地标。",
    "今日は天気がいいです",
    "use std::vector<int> or C++ templates, 100% sure",
    "recalled_passages = search(query)",
    "nothing to see",
]


@pytest.fixture
def filled(store):
    chat = store.create_chat()
    for text in TEXTS:
        store.add_user_message(chat.id, text)
    return store


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("fox", [0]),
        ("quick lazy", [0]),
        ("FOX", [0]),
        ("jum", [0]),
        ("quick nothing", []),
        ("cafe", [1]),
        ("munchen", [1]),
        ("东京塔", [2]),
        ("地标", [2]),
        ("塔", [2]),
        ("天気", [3]),
        ("C++", [4]),
        ("100%", [4]),
        ("%", [4]),
        ("_", [5]),
        ("passages", [5]),
        ("assage", [5]),
        ("fox,", [0]),
        ("(quick) 'dog'!", [0]),
        ('"', []),
        ("fox OR dog AND (", []),
        ("NEAR(fox", []),
        ("", []),
        ("   ", []),
        ("café 东京", []),
    ],
)
def test_finds(filled, query, expected):
    assert [TEXTS.index(hit.message.text) for hit in filled.search_messages(query)] == expected


def test_marks_stand_on_the_found_words(filled):
    for query, marked in [
        ("fox", "fox"),
        ("地标", "地标"),
        ("东京塔", "东京塔"),
        ("100%", "100%"),
        ("assage", "assage"),
    ]:
        (hit,) = filled.search_messages(query)
        assert [hit.snippet[start:end] for start, end in hit.marks] == [marked]


def test_a_snippet_of_a_long_text_is_short(store):
    chat = store.create_chat()
    store.add_user_message(chat.id, "字" * 5000 + "找到了" + "字" * 5000)
    store.add_user_message(chat.id, "word " * 3000 + "needle" + " word" * 3000)
    for query in ("找到", "找到了", "needle"):
        (hit,) = store.search_messages(query)
        assert len(hit.snippet) < 300
        assert [hit.snippet[start:end] for start, end in hit.marks] == [query]


def test_the_limit_and_the_index_follow_the_text(store):
    chat = store.create_chat()
    asked = store.add_user_message(chat.id, "apple")
    begun = store.begin_answer(chat.id, asked.id)
    assert store.search_messages("banana") == []
    store.finish_answer(begun.id, "banana apple", MessageStatus.COMPLETE)
    assert len(store.search_messages("apple")) == 2
    assert len(store.search_messages("apple", limit=1)) == 1
    store.finish_answer(begun.id, "cherry", MessageStatus.COMPLETE)
    assert store.search_messages("banana") == []
    assert len(store.search_messages("cherry")) == 1
    store.delete_chat(chat.id)
    assert store.search_messages("cherry") == []


@given(query=st.text(max_size=40) | st.text('fox"*()^:-+ 东京ANDORNOT%_\\', max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_query_is_a_query(filled, query):
    for hit in filled.search_messages(query):
        assert all(0 <= start < end <= len(hit.snippet) for start, end in hit.marks)
