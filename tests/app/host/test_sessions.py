"""A chat's session holds what is on the chat's path, whatever path it takes, and takes up what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.host.sessions import HELD_CHATS, SessionBook
from app.host.wire import GenerateRequest, PromptMessage, Role, Sampling
from app.ids import ChatId, MessageId
from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.load import LoadedModel, load_model
from engine.sampling.params import SamplingParams
from engine.types import EngineError, MessageKey, QuotaError, SessionId
from tests.engine.tiny import CPU, write_llama

PAGE = 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    folder: Path = tmp_path_factory.mktemp("tiny")
    write_llama(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield replace(load_model(folder, device=CPU, dtype=torch.float32), stop_ids=frozenset())
    torch.set_num_threads(threads)


class Chats:
    """The engine's child without the pipe: asks, answers, and looks at what a session has read."""

    def __init__(self, model: LoadedModel, *, sessions: int = 2, host_bytes: int = 1 << 22) -> None:
        self.engine = Engine(model, EngineConfig(160, PAGE, sessions, chunk_tokens=32, host_bytes=host_bytes))
        self.book = SessionBook(self.engine)

    def request(self, chat: str, path: list[str], system: str = "s", pinned: tuple[str, ...] = ()) -> GenerateRequest:
        def message(key: str) -> PromptMessage:
            role = Role.USER if key.startswith("q") else Role.ASSISTANT
            return PromptMessage(MessageId(key), role, f"the text of {key}")

        kept = tuple(message(key) for key in path if key in pinned)
        return GenerateRequest(ChatId(chat), system, tuple(map(message, path)), MessageId("x"), Sampling(), kept)

    def prepare(self, chat: str, path: list[str], system: str = "s", pinned: tuple[str, ...] = ()) -> SessionId:
        return self.book.prepare(self.request(chat, path, system, pinned), frozenset())

    def answer(self, chat: str, path: list[str], key: str, pinned: tuple[str, ...] = ()) -> SessionId:
        session = self.prepare(chat, path, pinned=pinned)
        self.engine.generate(session, MessageKey(key), SamplingParams(max_tokens=6))
        while self.engine.busy:
            self.engine.step()
        self.book.answered(ChatId(chat), MessageId(key))
        self.engine.check()
        return session

    def text(self, session: SessionId) -> str:
        s = self.engine._chats[session].session
        return self.engine.model.tokenizer.decode([*s.past, *s.pending])

    def read(self, session: SessionId) -> list[str]:
        return [span.key for span in self.engine._chats[session].session.messages]


def test_going_on_appends_and_another_path_rewinds(model: LoadedModel) -> None:
    chats = Chats(model)
    first = chats.answer("c", ["q0"], "a0")
    assert chats.answer("c", ["q0", "a0", "q1"], "a1") == first
    assert chats.read(first) == ["q0", "a0", "q1", "a1"]
    assert chats.prepare("c", ["q0", "a0", "q1"]) == first  # a1 is to be written again
    assert chats.read(first) == ["q0", "a0", "q1"]
    assert chats.engine.unread(first) <= PAGE
    assert chats.prepare("c", ["q0", "a0", "q2"]) == first  # q1 was edited
    assert chats.read(first) == ["q0", "a0", "q2"]


def test_a_fork_takes_up_the_pages_of_its_parent(model: LoadedModel) -> None:
    chats = Chats(model)
    path: list[str] = []
    for n in range(6):
        path = [*path, f"q{n}", f"a{n}"]
        parent = chats.answer("parent", path[:-1], path[-1])
    assert chats.engine.window(parent).evicted > 0
    child = chats.prepare("child", path[:4])
    assert child != parent
    assert chats.read(child) == path[:4]
    assert chats.engine.unread(child) <= PAGE
    assert chats.read(parent) == path


def test_a_turn_that_was_deleted_is_in_no_session(model: LoadedModel) -> None:
    chats = Chats(model)
    path = ["q0", "a0", "q1", "a1", "q2"]
    chats.answer("c", path, "a2")
    session = chats.prepare("c", ["q0", "a0", "q2", "a2", "q3"])
    assert "q1" not in chats.read(session)
    assert chats.read(session)[-1] == "q3"


def test_another_system_prompt_is_another_session(model: LoadedModel) -> None:
    chats = Chats(model)
    chats.answer("c", ["q0"], "a0")
    session = chats.prepare("c", ["q0", "a0", "q1"], system="another")
    assert chats.engine.window(session).sink_tokens == len("<system\nanother>\n")
    assert chats.read(session) == ["q0", "a0", "q1"]


def test_other_pins_are_another_session_in_which_each_message_is_read_once(model: LoadedModel) -> None:
    chats = Chats(model)
    path = ["q0", "a0", "q1"]
    plain = chats.answer("c", path, "a1")
    path = [*path, "a1", "q2"]
    pinned = chats.prepare("c", path, pinned=("a0",))
    assert pinned != plain
    assert chats.text(pinned).count("the text of a0") == 1
    assert chats.read(pinned) == ["q0", "q1", "a1", "q2"]
    assert chats.engine.whole_messages(pinned, 1)[0] == "a0"
    assert chats.answer("c", path, "a2", pinned=("a0",)) == pinned
    assert chats.answer("c", [*path, "a2", "q3"], "a3", pinned=("a0",)) == pinned
    assert chats.prepare("c", [*path, "a2", "q4"], pinned=("a0",)) == pinned  # q3 was edited
    fork = chats.prepare("fork", [*path, "q5"], pinned=("a0",))
    assert chats.read(fork) == ["q0", "q1", "a1", "q2", "q5"]
    assert chats.engine.unread(fork) <= PAGE + len("<user\nthe text of q5>\n")
    unpinned = chats.prepare("c", [*path, "a2", "q4"])
    assert chats.read(unpinned) == [*path, "a2", "q4"][-len(chats.read(unpinned)) :]


def test_a_pinned_message_is_there_however_far_back_it_was_said(model: LoadedModel) -> None:
    chats = Chats(model)
    path = ["q0"]
    for n in range(12):
        session = chats.answer("c", path, f"a{n}", pinned=("q0",) if n else ())
        path = [*path, f"a{n}", f"q{n + 1}"]
    window = chats.engine.window(session)
    assert window.evicted > 2 * window.ring_tokens
    assert window.messages[1].visible == window.messages[1].total == len("<user\nthe text of q0>\n")
    tail = chats.request("c", path[-4:])
    again = replace(tail, chat=ChatId("reopened"), pinned=chats.request("c", path, pinned=("q0",)).pinned)
    pinned = chats.book.prepare(again, frozenset())
    assert "the text of q0" in chats.text(pinned)
    unpinned = chats.book.prepare(replace(again, pinned=()), frozenset())
    assert "the text of q0" not in chats.text(unpinned)
    assert chats.read(unpinned) == path[-3:]
    assert "the text of q0" not in chats.text(chats.book.prepare(replace(tail, chat=ChatId("fork")), frozenset()))
    assert chats.text(chats.book.prepare(again, frozenset())).count("the text of q0") == 1


def test_too_many_pins_are_refused_and_the_chat_stays_as_it_was(model: LoadedModel) -> None:
    chats = Chats(model)
    path = [f"{role}{n}" for n in range(4) for role in "qa"]
    session = chats.answer("c", path[:-1], path[-1])
    with pytest.raises(QuotaError, match="what is pinned takes 196 tokens; 80 are allowed of a window of 160"):
        chats.prepare("c", [*path, "q9"], pinned=tuple(path))
    assert chats.book.session(ChatId("c")) == session
    assert chats.prepare("c", [*path, "q9"]) == session


def test_what_is_known_no_more_is_fed_from_text(model: LoadedModel) -> None:
    chats = Chats(model, sessions=1, host_bytes=0)
    path: list[str] = []
    for n in range(9):
        path = [*path, f"q{n}", f"a{n}"]
        chats.answer("long", path[:-1], path[-1])
    chats.answer("other", ["q100"], "a100")
    session = chats.prepare("long", [*path, "q9"])
    assert chats.read(session) == [*path, "q9"][-len(chats.read(session)) :]
    assert len(chats.read(session)) < len(path) - 6


def test_many_chats_keep_a_bounded_number_of_histories(model: LoadedModel) -> None:
    chats = Chats(model)
    for n in range(HELD_CHATS + 9):
        chats.answer(f"c{n}", [f"q{n}"], f"a{n}")
    assert sum(chats.book.session(ChatId(f"c{n}")) is not None for n in range(HELD_CHATS + 9)) == HELD_CHATS
    assert chats.book.session(ChatId("c0")) is None


turns = st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.booleans())


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(turns, max_size=14), st.sampled_from([0, 40_000, 1 << 22]))
def test_a_session_holds_a_tail_of_the_path_and_nothing_else(
    model: LoadedModel, asked: list[tuple[str, int, bool]], host_bytes: int
) -> None:
    """Chats that go on from any turn of any chat, as forks, edits and regenerations do."""
    chats = Chats(model, host_bytes=host_bytes)
    paths: list[list[str]] = [[]]
    for n, (chat, parent, regenerate) in enumerate(asked):
        path = paths[parent % len(paths)]
        path = path[:-1] if regenerate and path else [*path, f"q{n}"]
        session = chats.answer(chat, path, f"a{n}")
        read = chats.read(session)
        assert read == [*path, f"a{n}"][-len(read) :]
        paths.append([*path, f"a{n}"])


def test_a_message_whose_text_changed_is_read_anew(model: LoadedModel) -> None:
    """What was recalled into a question is taken out of it when its source is deleted."""
    chats = Chats(model)
    for chat, path in (("c", ["q0", "a0", "q1"]), ("fork", ["q0", "a0", "q2"])):
        chats.answer("c", ["q0"], "a0")
        request = chats.request(chat, path)
        asked = replace(request.messages[0], text="a deleted secret")
        chats.book.close(ChatId("c"))
        chats.book.prepare(replace(request, chat=ChatId("c"), messages=(asked, *request.messages[1:2])), frozenset())
        session = chats.book.prepare(request, frozenset())
        assert chats.read(session) == path
        assert "secret" not in chats.text(session)


def test_a_turn_near_the_beginning_of_what_was_read_is_answered_with_what_came_before(model: LoadedModel) -> None:
    """A reopened chat was fed its newest turns; regenerating one of the first of them needs those before."""
    path = [f"{role}{n}" for n in range(12) for role in "qa"]
    fresh = Chats(model)
    reopened, other = Chats(model), Chats(model)
    first = reopened.read(reopened.answer("c", path[:-1], path[-1]))[0]
    other.answer("c", path[:-1], path[-1])
    again = path[: path.index(first) + 1]
    expected = fresh.read(fresh.prepare("c", again))
    assert len(expected) > 1
    assert reopened.read(reopened.prepare("c", again)) == expected
    assert other.read(other.prepare("fork", again)) == expected


def test_a_chat_that_was_opened_before_its_path_reads_only_what_fits(model: LoadedModel) -> None:
    path = [f"{role}{n}" for n in range(12) for role in "qa"]
    chats = Chats(model)
    chats.prepare("c", [])
    assert len(chats.read(chats.prepare("c", path[:-1]))) < len(path) - 6


def test_a_chat_that_answers_is_left_alone(model: LoadedModel) -> None:
    """Another system prompt, path or question would take the session from under its answer."""
    chats = Chats(model)
    session = chats.answer("c", ["q0"], "a0")
    chats.prepare("c", ["q0", "a0", "q1"])
    chats.engine.generate(session, MessageKey("a1"), SamplingParams(max_tokens=6))
    for path, system in ((["q0", "a0", "q1"], "another"), (["q9"], "s"), (["q0", "a0", "q2"], "s")):
        with pytest.raises(EngineError) as refused:
            chats.book.prepare(chats.request("c", path, system), frozenset({session}))
        assert "still answering" in str(refused.value)
    while chats.engine.busy:
        chats.engine.step()
    chats.book.answered(ChatId("c"), MessageId("a1"))
    assert chats.read(session) == ["q0", "a0", "q1", "a1"]
    assert chats.prepare("c", ["q0", "a0", "q1", "a1", "q2"], "another") != session
