from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memory import Memory
from memory.digest import EXTRACT, Segment
from memory.types import Message, RecallRequest, Scope, SourceId

Turns = Callable[..., list[Message]]
DAY = 86_400.0
ROOF = (
    "The roof leaks above the attic. What can we do about it before the winter comes?",
    "You can replace the broken tiles, or lay a new underlay. Ask two roofers for an offer.",
    "We decided to take the offer of Meyer for 4,200 euros. He begins in the second week of March.",
    "Good choice. Ask him for a written contract with the date in it.",
)
GARDEN = (
    "I want to plant an apple tree in the garden behind the house. Which kind is good for cider?",
    "Kinds such as Kingston Black or Dabinett are grown for cider. They need sun and a deep soil.",
    "Then let's buy two Dabinett trees in autumn, and put them where the old shed stood.",
    "Two trees help each other to bear more. Keep five metres between them.",
)
SUMMARY = "They decided to take the offer of Meyer for the roof, which leaks above the attic."


def said(turns: Turns, texts: tuple[str, ...], chat: str, days_ago: float) -> list[Message]:
    made = turns(texts, chat)
    began = time.time() - days_ago * DAY
    return [replace(message, time=began + n, chat_title=f"Talk {chat}") for n, message in enumerate(made)]


def segment(memory: Memory, *visible: str) -> Segment:
    found = memory.next_segment(visible)
    assert found is not None
    return found


def count(text: str) -> int:
    return len(text) // 4 + 1


def files_with(folder: Path, word: str) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and word.encode() in file.read_bytes()]


def test_what_is_still_to_be_summed_up_is_what_has_no_digest(memory: Memory, turns: Turns) -> None:
    assert memory.next_segment(()) is None
    messages = said(turns, ROOF, "roof", 3)
    memory.remember(messages)
    first = segment(memory)
    assert first.messages == tuple(message.id for message in messages)
    assert "Meyer" in first.question
    assert memory.next_segment(first.messages[:1]) is None
    kept = memory.keep_digest(first.source.id, first.messages, SUMMARY, "a model")
    assert kept is not None
    assert (kept.maker, kept.refused) == ("a model", "")
    assert kept.text.startswith(SUMMARY)
    assert memory.next_segment(()) is None
    assert memory.keep_digest(first.source.id, first.messages, SUMMARY, "a model") is None
    assert memory.counts().unindexed == 0


def test_a_summary_that_cannot_be_believed_leaves_an_extract(memory: Memory, turns: Turns) -> None:
    memory.remember(said(turns, ROOF, "roof", 3))
    found = segment(memory)
    kept = memory.keep_digest(found.source.id, found.messages, "They went to Xi'an, a city in China.", "a model")
    assert kept is not None
    assert kept.maker == EXTRACT
    assert kept.refused
    assert "We decided to take the offer of Meyer for 4,200 euros." in kept.text


def test_todays_turns_wait_until_there_are_enough_and_what_is_visible_waits(memory: Memory, turns: Turns) -> None:
    memory.remember(said(turns, ROOF, "roof", 0))
    assert memory.next_segment(()) is None
    more = said(turns, ROOF * 6, "long", 0)
    memory.remember(more)
    assert memory.next_segment([more[2].id]) is None
    part = segment(memory, more[-1].id)
    assert 4 <= len(part.messages) <= 13
    assert part.messages == tuple(message.id for message in more[: len(part.messages)])
    assert part.turns[-1].role == "assistant"


def test_a_day_is_not_summed_up_with_another(memory: Memory, turns: Turns) -> None:
    old, new = said(turns, ROOF, "one", 5), said(turns, ROOF + GARDEN, "one", 2)[4:]
    memory.remember([*old, *new])
    first = segment(memory)
    assert first.messages == tuple(message.id for message in old)
    memory.keep_digest(first.source.id, first.messages, "", "")
    assert segment(memory).messages == tuple(message.id for message in new)


def test_asked_what_was_talked_about_the_digests_of_those_days_are_delivered(memory: Memory, turns: Turns) -> None:
    memory.remember(said(turns, ROOF, "roof", 1))
    memory.remember(said(turns, GARDEN, "garden", 40))
    while (found := memory.next_segment(())) is not None:
        memory.keep_digest(found.source.id, found.messages, "", "")
    ask = RecallRequest("What did we talk about yesterday?", SourceId("new"), budget_tokens=600)
    recall = memory.recall(ask, count)
    assert recall.decision.scope is Scope.TALKS
    assert [hit.passage.role for hit in recall.hits] == ["digest"]
    assert recall.hits[0].passage.turns == tuple(f"roof-m{n}" for n in range(1, 5))
    assert recall.hits[0].passage.place.message == "roof-m1"
    assert "Meyer" in recall.block
    assert "a summary of the talk" in recall.block
    for question in ("Worüber haben wir gesprochen?", "我们都聊了什么？", "Summarize our conversations."):
        block = memory.recall(replace(ask, question=question), count).block
        assert "Meyer" in block
        assert "Dabinett" in block
    seen = replace(ask, visible=frozenset(recall.hits[0].passage.turns))
    assert "Meyer" not in memory.recall(seen, count).block


def test_before_there_are_digests_the_questions_themselves_say_what_was_talked_about(
    memory: Memory, turns: Turns
) -> None:
    memory.remember(said(turns, ROOF, "roof", 0))
    recall = memory.recall(RecallRequest("What have we talked about today?", SourceId("new")), count)
    assert "The roof leaks" in recall.block
    nothing = memory.recall(RecallRequest("What did we talk about last year?", SourceId("new")), count)
    assert "nothing about this was found" in nothing.block


def test_where_there_is_room_for_little_a_digest_comes_before_newer_single_turns(memory: Memory, turns: Turns) -> None:
    memory.remember(said(turns, ROOF, "roof", 3))
    found = segment(memory)
    memory.keep_digest(found.source.id, found.messages, SUMMARY, "a model")
    memory.remember(said(turns, ROOF + GARDEN, "roof", 1)[4:])
    ask = RecallRequest("What did we talk about?", SourceId("new"), budget_tokens=119)
    assert [hit.passage.role for hit in memory.recall(ask, count).hits] == ["digest"]


def test_a_question_about_a_decision_finds_the_digest_or_its_turns(memory: Memory, turns: Turns) -> None:
    memory.remember(said(turns, ROOF, "roof", 3))
    found = segment(memory)
    memory.keep_digest(found.source.id, found.messages, SUMMARY, "a model")
    recall = memory.recall(RecallRequest("What did we decide about the roof?", SourceId("new")), count)
    assert "Meyer" in recall.block
    assert any(hit.passage.role == "digest" for hit in memory.search("decided about the roof"))


@pytest.mark.parametrize("number", range(4))
def test_a_digest_goes_with_any_of_its_turns_and_so_do_its_words(
    memory: Memory, turns: Turns, tmp_path: Path, number: int
) -> None:
    texts = tuple(f"{text} Quixotry {n}." for n, text in enumerate(ROOF))
    messages = said(turns, texts, "roof", 3)
    memory.remember(messages)
    found = segment(memory)
    marked = "They decided to take the offer of Meyer for the roof, xylophonically."
    kept = memory.keep_digest(found.source.id, found.messages, marked, "a model")
    assert kept is not None
    assert kept.maker == "a model"
    assert files_with(tmp_path, "xylophonically")
    memory.forget(SourceId("roof"), [messages[number].id])
    assert files_with(tmp_path, "xylophonically") == []
    assert not any(hit.passage.role == "digest" for hit in memory.search("the offer of Meyer"))
    rest = segment(memory)
    assert rest.messages == tuple(m.id for m in messages if m.id != messages[number].id)


def test_a_digest_goes_with_its_chat_and_when_a_turn_is_rewritten(memory: Memory, turns: Turns) -> None:
    messages = said(turns, ROOF, "roof", 3)
    memory.remember(messages)
    found = segment(memory)
    memory.keep_digest(found.source.id, found.messages, SUMMARY, "a model")
    memory.remember(messages)  # at least once: the same again changes nothing
    assert memory.next_segment(()) is None
    memory.remember([replace(messages[2], text="We have not decided about the roof, and wait until the summer.")])
    assert not any(hit.passage.role == "digest" for hit in memory.search("offer of Meyer"))
    again = segment(memory)
    assert set(again.messages) == {message.id for message in messages}
    memory.keep_digest(again.source.id, again.messages, "", "")
    memory.forget(SourceId("roof"))
    assert memory.counts().passages == 0


def test_turns_forgotten_while_a_model_sums_them_up_get_no_digest(memory: Memory, turns: Turns) -> None:
    messages = said(turns, ROOF, "roof", 3)
    memory.remember(messages)
    found = segment(memory)
    memory.forget(SourceId("roof"), [messages[1].id])
    assert memory.keep_digest(found.source.id, found.messages, SUMMARY, "a model") is None
    assert memory.counts().passages == 3


@pytest.mark.parametrize("days", [197, 205])
def test_short_days_and_long_messages_hold_up_nothing_that_comes_after(memory: Memory, turns: Turns, days: int) -> None:
    """However many passages there are that are too short to be summed up, and wherever a reading ends."""
    short = [message for day in range(days) for message in said(turns, ("Hi.", "Hello."), f"day{day}", 210.0 - day)]
    short = [replace(message, chat=SourceId("long")) for message in short]
    last = said(turns, ROOF, "roof", 3)
    long = replace(last[-1], id="essay", text="\n\n".join(f"Paragraph {n}. " + "And so on. " * 60 for n in range(30)))
    memory.remember([*short, *(replace(message, chat=SourceId("long")) for message in (*last, long))])
    found = segment(memory)
    assert set(found.messages) <= {message.id for message in (*last, long)}
    essay = next((turn.text for turn in found.turns if turn.text.startswith("Paragraph 0.")), "")
    assert "Paragraph 29." in essay


def test_a_pinned_message_hides_none_that_follow_it(memory: Memory, turns: Turns) -> None:
    messages = said(turns, ROOF + GARDEN, "one", 3)
    memory.remember(messages)
    found = segment(memory, messages[0].id, messages[-1].id)
    assert found.messages == tuple(message.id for message in messages[1:-1])
