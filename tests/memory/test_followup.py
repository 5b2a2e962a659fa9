from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.recall.followup import search_query

BRIDGES = ["Who built the Øresund bridge?", "How long did it take?", "What did it cost?"]


@pytest.mark.parametrize(
    ("earlier", "question", "wanted"),
    [
        (BRIDGES, "And where does it begin?", "Øresund"),
        (["What is a monad?"], "What are its laws?", "monad"),
        (["Tell me about Marie Curie.", "What did she study?"], "Where was she born?", "Curie"),
        (["Tell me about the Gotthard tunnel."], "why was it built", "Gotthard"),
        (["Which ferries go to Bornholm?"], "how about in winter?", "Bornholm"),
        (["Which lakes are in Finland?"], "Which is the largest?", "lakes"),
        (
            ["Tell me about the Stanford experiment.", "Was it ethical?"],
            "Who was the author of the experiment?",
            "Stanford",
        ),
        (
            ["Who was Anne Bonny?", "Who was her husband?", "How did Calico Jack die?"],
            "What happened to Anne?",
            "Bonny",
        ),
        (["Tell me about solar cookers."], "Are there any disadvantages?", "solar cookers"),
        (["How does Docker work?"], "What other tools are there?", "Docker"),
        (
            ["How far is Bergen?", "How long does the train take?", "Is the ferry faster?"],
            "How much does it cost?",
            "Bergen",
        ),
        (["介绍一下故宫的历史"], "它是什么时候建的？", "故宫"),
        (["苏州园林有哪些？"], "那里怎么去？", "苏州园林"),
        (["北京今天的天气怎么样？"], "那上海呢？", "天气"),
        (["杭州的酒店订好了吗"], "一晚多少钱？", "杭州"),
        (["新房子的物业费交了吗"], "每个月多少钱？", "物业费"),
    ],
)
def test_a_follow_up_is_searched_with_what_it_leaves_out(earlier: list[str], question: str, wanted: str) -> None:
    query = search_query(question, earlier)
    assert query.startswith(question)
    assert wanted in query


@pytest.mark.parametrize(
    "question",
    [
        *("How do whales sleep?", "If a dog eats chocolate, is it dangerous?", "What is Rust, and who made it?"),
        *("What is the most popular language of the world?", "Is it possible to learn Polish in a year?"),
        *("What are the types of stars?", "Compare cats and dogs.", "Tell me about sourdough and its history."),
        *("What time is it in Tokyo?", "Why is the sky blue?", "Is there water on Mars?", "鲸鱼怎么睡觉？"),
        "My sister is coming on Sunday. What could I cook for her?",
    ],
)
def test_a_question_that_stands_on_its_own_is_left_alone(question: str) -> None:
    assert search_query(question, [*BRIDGES, "介绍一下故宫的历史"]) == question


@given(st.text(), st.lists(st.text()))
def test_words_are_only_ever_added(question: str, earlier: list[str]) -> None:
    assert search_query(question, earlier).startswith(question)
    assert search_query(question, []) == question
