"""Summaries in the engine's child: in nobody's way, and gone without a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.host import wire
from app.host.digests import SummariseRequest
from app.host.sampling import FinishReason
from app.ids import ChatId
from tests.app.host.test_engine_child import Child, asking, folder  # noqa: F401 - folder is a fixture

ASKED = SummariseRequest("What did the two talk about? " * 2, 12)


def sessions(child: Child) -> int:
    engine = child.child._engine
    assert engine is not None
    engine.check()
    return engine.stats().chats


def test_a_summary_streams_ends_and_leaves_no_session(folder: Path) -> None:  # noqa: F811
    child = Child(folder)
    call = child.run(ASKED)
    finished = child.channel.results[call]
    assert isinstance(finished, wire.Finished)
    assert finished.new_tokens <= 12
    assert "".join(delta.text for delta in child.told(call, wire.Delta)) or finished.new_tokens <= 1
    assert sessions(child) == 0


def test_a_question_comes_before_a_summary(folder: Path) -> None:  # noqa: F811
    child = Child(folder)
    order: list[int] = []
    summary = child.call(ASKED)
    answer = child.run(asking())
    for of, payload in child.channel.events:
        if isinstance(payload, wire.Delta | wire.WindowView):
            order.append(of)
    assert isinstance(child.channel.results[summary], wire.Finished)
    assert isinstance(child.channel.results[answer], wire.Finished)
    told = [of for of in order if of == answer]
    assert order[: len(told)] == told
    assert sessions(child) == 1


def test_a_summary_that_nobody_wants_ends_before_its_next_token(folder: Path) -> None:  # noqa: F811
    child = Child(folder)
    call = child.call(ASKED)
    child.channel.after_event = lambda: child.channel.dropped.add(call)
    child.child.run()
    finished = child.channel.results[call]
    assert isinstance(finished, wire.Finished)
    if finished.reason is FinishReason.CANCELLED:
        assert finished.new_tokens < 12
    assert sessions(child) == 0


def test_what_does_not_fit_or_would_cost_a_chat_its_place_is_refused(folder: Path) -> None:  # noqa: F811
    child = Child(folder)
    long = child.run(SummariseRequest("word " * 400, 12))
    assert "cannot be summed up" in child.channel.failures[long]
    for chat in ("one", "two"):
        child.run(replace(asking(), chat=ChatId(chat)))
    crowded = child.run(ASKED)  # two sessions, and no memory for what would leave
    assert "allow one more session" in child.channel.failures[crowded]
    assert sessions(child) == 2
