"""The rules that need no terminal."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import NOON, ScriptedDesk, passage

from app.events import AnswerDelta, AnswerDone, IngestJob, JobPhase, MessageAdded
from app.host.wire import Role, WindowSegment, WindowView
from app.ids import ChatId, JobId, MessageId
from app.store.export import to_markdown
from app.store.types import Chat, Message, MessageStatus
from app.tui.glyphs import ASCII, UNICODE, choose
from app.tui.live import LiveAnswers
from app.tui.text import evicted, export_name, job_words, newlines, one_line
from app.tui.widgets.message import footer
from app.tui.widgets.meter import Tint, facts, long_facts, stretches
from app.tui.widgets.prompt import landing, location_of, offset_of

CHAT = ChatId("c1")


def window(visible: list[int], *, sinks: int = 30, quota: int = 512) -> WindowView:
    """A window in which message m<i> has visible[i] tokens."""
    segments = tuple(WindowSegment(MessageId(f"m{i}"), n, max(n, 10)) for i, n in enumerate(visible))
    seen = sinks + sum(visible)
    sizes = (11_796_480, 1_000_000, 2_000_000)
    ring = quota - sinks
    return WindowView(CHAT, quota, sinks, 0, ring, seen, seen + 99, 99, 7, 16, *sizes, 31, "f32", 8.25, segments)


class TestEvicted:
    order = tuple(MessageId(f"m{i}") for i in range(6))

    def test_before_the_oldest_visible_message_all_is_evicted(self):
        view = replace(window([0, 0, 5, 20]), segments=window([0, 0, 5, 20]).segments[2:])
        assert evicted(view, self.order) == {"m0", "m1"}

    def test_what_lies_between_a_pinned_message_and_the_ring_is(self):
        base = window([8, 0, 0, 5, 20])
        pinned = replace(base.segments[0], pinned=True)
        view = replace(base, segments=(pinned, *base.segments[3:]))
        assert evicted(view, self.order) == {"m1", "m2"}
        assert evicted(replace(view, segments=(pinned,)), self.order) == frozenset()

    def test_newer_messages_than_the_engine_knows_are_not(self):
        assert "m5" not in evicted(window([0, 0, 5, 20]), self.order)

    def test_a_message_counted_with_no_visible_token_is(self):
        assert evicted(window([0, 0, 0, 0]), self.order) == {"m0", "m1", "m2", "m3"}

    def test_without_a_window_nothing_is(self):
        assert evicted(None, self.order) == frozenset()

    @settings(deadline=None)
    @given(st.lists(st.integers(0, 3), max_size=6))
    def test_a_visible_message_never_is(self, visible):
        gone = evicted(window(visible), self.order)
        assert not gone & {MessageId(f"m{i}") for i, n in enumerate(visible) if n}


class TestEndings:
    def message(self, status: MessageStatus) -> Message:
        return Message(MessageId("m1"), CHAT, None, Role.ASSISTANT, "again and again and", NOON, status)

    @pytest.mark.parametrize("status", MessageStatus)
    def test_an_answer_that_did_not_end_by_itself_says_why(self, status):
        message = self.message(status)
        told = footer(message).plain
        assert bool(told) == (status not in (MessageStatus.COMPLETE, MessageStatus.STREAMING))
        exported = to_markdown(Chat(CHAT, "t", NOON, NOON, message.id), [message], {})
        assert (" · " in exported.split("\n")[2].partition(":")[2]) == (status is not MessageStatus.COMPLETE)

    def test_a_loop_is_named(self):
        assert footer(self.message(MessageStatus.LOOPED)).plain == "ended: the answer was repeating itself"


class TestMeter:
    @settings(deadline=None)
    @given(st.lists(st.integers(0, 200), max_size=40), st.integers(0, 64), st.integers(64, 4096), st.integers(1, 200))
    def test_the_cells_fill_the_width_exactly(self, visible, sinks, quota, width):
        found = stretches(window(visible, sinks=sinks, quota=quota), width)
        assert sum(s.cells for s in found) == width
        assert all(s.cells > 0 for s in found)

    @settings(deadline=None)
    @given(st.lists(st.integers(0, 40), max_size=10), st.integers(1, 200))
    def test_free_cells_show_what_is_not_visible(self, visible, width):
        view = window(visible)
        free = sum(s.cells for s in stretches(view, width) if s.tint is Tint.FREE)
        assert abs(free - (view.quota_tokens - view.visible_tokens) / view.quota_tokens * width) <= 1

    def test_the_selected_message_is_marked(self):
        found = stretches(window([100, 100]), 100, MessageId("m1"))
        assert [s.tint for s in found] == [Tint.SINKS, Tint.EVEN, Tint.MARKED, Tint.FREE]

    def test_pinned_messages_are_drawn_as_sinks_and_counted(self):
        pinned = WindowSegment(MessageId("p"), 60, 60, pinned=True)
        base = window([100, 100], sinks=90)
        view = replace(base, pinned_tokens=60, segments=(pinned, *base.segments))
        assert stretches(view, 100) == stretches(base, 100)
        assert "pinned       60 tokens" in long_facts(view)

    def test_the_numbers_are_the_engines(self):
        assert facts(window([100, 100])) == [
            "230 of 512 tokens visible",
            "99 evicted",
            "8.2 tok/s",
            "11.8 MB f32",
            "next eviction in 7 tokens",
        ]
        told = long_facts(window([100, 100]))
        assert "ring           200 of 482 tokens" in told
        assert "Past windows     1.0 MB of 2.0 MB" in told
        assert "the next is recycled in 7 tokens, 0.8 s of writing" in told
        assert "Found again      31 tokens" in told


class TestLanding:
    @settings(deadline=None)
    @given(st.text(), st.data(), st.text())
    def test_text_typed_after_a_paste_stays_after_it(self, before, data, typed):
        offset = data.draw(st.integers(0, len(before)))
        assert landing(before, offset, before[:offset] + typed + before[offset:]) == offset

    def test_other_changes_are_noticed(self):
        assert landing("abc", 1, "c") is None
        assert landing("abc", 3, "xbc") is None

    @settings(deadline=None)
    @given(st.text(alphabet="ab\n"), st.data())
    def test_offsets_and_locations_are_inverse(self, text, data):
        offset = data.draw(st.integers(0, len(text)))
        assert offset_of(text, location_of(text, offset)) == offset


class TestWords:
    @settings(deadline=None)
    @given(st.text(), st.integers(1, 50))
    def test_one_line_is_one_short_line(self, text, width):
        line = one_line(text, width)
        assert "\n" not in line
        assert len(line) <= width

    @settings(deadline=None)
    @given(st.text())
    def test_line_ends_become_lf(self, text):
        assert not set("\r\x00") & set(newlines(text))

    def test_a_crlf_is_one_line_end(self):
        assert newlines("a\r\nb\rc") == "a\nb\nc"

    @settings(deadline=None)
    @given(st.text())
    def test_an_export_is_a_plain_file_name(self, title):
        name = export_name(title)
        assert name.endswith(".md")
        assert not set("/\\\n\x00") & set(name)
        assert len(name) <= 64

    @pytest.mark.parametrize("phase", list(JobPhase))
    def test_every_phase_of_a_file_has_words(self, phase):
        assert job_words(IngestJob(JobId("j"), None, "a", phase, 1, 3))

    def test_a_failed_file_says_why(self):
        job = IngestJob(JobId("j"), None, "a.pdf", JobPhase.FAILED, detail="It is encrypted.")
        assert "It is encrypted." in job_words(job)

    def test_terminals_without_the_signs_get_ascii(self):
        assert choose("utf-8", "xterm-256color") is UNICODE
        assert choose("ascii", "xterm") is ASCII
        assert choose("utf-8", "linux") is ASCII
        assert all(getattr(ASCII, name).isascii() for name in ASCII.__slots__)


class TestLiveAnswers:
    def test_it_knows_the_whole_text_of_each_running_answer(self):
        desk = ScriptedDesk()
        chat = desk.add_chat("t", ["q"])
        live = LiveAnswers()
        desk.subscribe(live.follow)
        answer = desk.begin_answer(chat)
        desk.delta(chat, "one ")
        desk.delta(chat, "two")
        assert live.text(answer) == "one two"
        assert live.running(chat) == answer
        desk.finish(chat)
        assert live.text(answer) is None
        assert live.running(chat) is None

    def test_a_delta_without_a_beginning_counts_as_running(self):
        live = LiveAnswers()
        live.follow(AnswerDelta(CHAT, MessageId("m1"), "x"))
        assert live.running(CHAT) == "m1"

    def test_complete_messages_do_not_run(self):
        desk = ScriptedDesk()
        chat = desk.add_chat("t", ["q", "a"])
        live = LiveAnswers()
        for message in desk.path(chat):
            live.follow(MessageAdded(chat, message))
        assert live.running(chat) is None
        live.follow(AnswerDone(chat, desk.path(chat)[1]))


def test_a_passage_names_its_place():
    assert passage("1").place() == "report.pdf, page 2"
    assert passage("1", confidence=91.4).place() == "report.pdf, page 2 (OCR, 91 % sure)"
    assert passage("1", page=None, line=7).place() == "report.pdf, line 7"
    assert NOON
