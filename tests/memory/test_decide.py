from __future__ import annotations

import pytest

from memory.recall.decide import Known, decide, is_generic, page_asked
from memory.types import RecallRequest, Scope, SourceId

CHAT = SourceId("c")
REPORT = SourceId("d1")
NOTES = SourceId("d2")
KNOWN = Known(9, ((REPORT, "trip_report-2024.pdf"), (NOTES, "notes.md")), unseen=True, earlier=())


def ask(question: str, known: Known = KNOWN, **more: tuple[SourceId, ...]) -> Scope:
    return decide(RecallRequest(question, CHAT, **more), known).scope  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "question",
    [
        *("hi", "Hello there!", "Thanks a lot.", "ok", "你好", "谢谢!", ""),
        *("12*7", "What is 3 + 4?"),
        *("Translate that into French", "Make it shorter", "翻译成英文"),
        *("My dog is called Biscuit.", "Remember that I live in Gdansk.", "我叫小明。"),
    ],
)
def test_needs_nothing(question: str) -> None:
    assert ask(question) is Scope.NOTHING


@pytest.mark.parametrize(
    ("question", "scope"),
    [
        ("What did I say earlier about the boat?", Scope.CHAT),
        ("What did we decide last week?", Scope.CHATS),
        ("Do you remember where we met?", Scope.CHATS),
        ("上次你说过什么？", Scope.CHATS),
        ("我刚才说的颜色是什么？", Scope.CHAT),
        ("What is the name of my dog?", Scope.EVERYTHING),
        ("我的狗叫什么？", Scope.EVERYTHING),
        ("What does trip_report-2024.pdf say about hotels?", Scope.FILE),
        ("What does the trip report 2024 say about hotels?", Scope.FILE),
        ("What do the documents say about hotels?", Scope.DOCUMENTS),
        ("How do whales sleep?", Scope.EVERYTHING),
    ],
)
def test_scope(question: str, scope: Scope) -> None:
    assert ask(question) is scope


def test_an_empty_store_has_nothing() -> None:
    assert ask("What did I say earlier?", Known(0, (), unseen=False, earlier=())) is Scope.NOTHING


def test_an_attached_file_is_read_from_its_start_when_the_question_says_nothing() -> None:
    for question in (
        "",
        "What is in the file?",
        "Summarise it",
        "summarize this document please",
        "这个文件讲了什么？",
        "总结一下",
    ):
        decision = decide(RecallRequest(question, CHAT, attached=(NOTES,)), KNOWN)
        assert (decision.scope, decision.query, decision.sources) == (Scope.FILE, "", (NOTES,)), question


def test_a_question_with_content_searches_the_attached_file() -> None:
    decision = decide(RecallRequest("When does the ferry leave?", CHAT, attached=(REPORT, NOTES)), KNOWN)
    assert (decision.scope, decision.query) == (Scope.FILE, "When does the ferry leave?")


def test_the_gist_is_asked_of_the_newest_file_of_the_chat() -> None:
    decision = decide(RecallRequest("Summarise it", CHAT, chat_documents=(REPORT, NOTES)), KNOWN)
    assert (decision.scope, decision.sources) == (Scope.FILE, (NOTES,))
    assert ask("Summarise it") is not Scope.FILE


def test_this_chat_is_only_named_when_it_holds_something_unseen() -> None:
    seen = Known(9, (), unseen=False, earlier=())
    assert ask("What did I say earlier?", seen) is Scope.CHATS


def test_an_ordinary_word_is_no_file_name() -> None:
    assert ask("How do people take notes quickly?") is Scope.EVERYTHING


def test_a_follow_up_is_searched_with_the_question_before() -> None:
    known = Known(9, (), unseen=False, earlier=("Who built the Heron satellite?",))
    assert "Heron" in decide(RecallRequest("And when was it launched?", CHAT), known).query


def test_reasons_are_given() -> None:
    for question in ("hi", "What is my name?", "How do whales sleep?"):
        assert decide(RecallRequest(question, CHAT), KNOWN).reason


def test_pages() -> None:
    assert page_asked("What is on page 12?") == 12
    assert page_asked("第 3 页写了什么") == 3
    assert page_asked("What is on the page?") is None
    assert not is_generic("What is on page 2?")


def test_a_thing_of_ones_own_is_searched_for_and_a_statement_is_not() -> None:
    for asked in ("my tax number", "our gig date", "my wifi password", "我的导师"):
        decision = decide(RecallRequest(asked, CHAT), KNOWN)
        assert (decision.scope, decision.own, decision.must) == (Scope.EVERYTHING, False, False), asked
    for told in ("My dog is called Rex", "my cat has fleas", "Our train got cancelled", "我的狗叫小明"):
        assert ask(told) is Scope.NOTHING, told
