"""What a person sees while chatting."""

from __future__ import annotations

from dataclasses import replace

from driving import person, shown
from scripted import ENGINE, ScriptedDesk, passage
from textual import events as keys
from textual.widgets import Markdown

from app.events import JobPhase, ModelPhase, ModelState, Notice, Part, PromptProgress, Severity, SummingUp, TurnsOver
from app.ids import ChatId
from app.store.types import MessageStatus
from app.tui.screens.confirm import ConfirmScreen
from app.tui.screens.sources import SourcesScreen
from app.tui.widgets.keybar import KeyBar
from app.tui.widgets.meter import Meter
from app.tui.widgets.sources import PassageList
from app.tui.widgets.transcript import MOUNTED

NASTY = "[/b] [red]x[/] [link='a'] \\[ [@click=quit()]q[/]"


def body(view) -> str:
    return view.query_one(Markdown).source


def long_chat(desk: ScriptedDesk, count: int) -> ChatId:
    return desk.add_chat("long", [f"message {i}\n\nsecond line\n\nthird line" for i in range(count)])


async def test_an_answer_streams_and_ends_with_its_citations(desk):
    async with person(desk) as p:
        assert p.screen.query_one("#welcome").display
        await p.write("Where is the hall?")
        await p.until(lambda: len(p.screen.transcript.mounted) == 1)
        assert not p.screen.query_one("#welcome").display
        chat = p.chat
        await p.until(lambda: p.screen.query_one("#status").title == "Where is the hall?")
        desk.recall(chat, passage("1"), reason="the question [/b] names a file")
        await p.until(lambda: "1 passage recalled" in p.text("#activity"))
        assert p.text("#reason") == "documents: the question [/b] names a file"
        desk.tell(PromptProgress(chat, 64, 480))
        await p.until(lambda: "reading 64 of 480 tokens" in p.text("#activity"))
        desk.begin_answer(chat)
        for piece in ("On the ", "**north** ", "bank [1].", "\n\n```py\nx = 1\n", "y = 2\n```\n"):
            desk.delta(chat, piece)
        await p.until(lambda: len(p.screen.transcript.mounted) == 2)
        view = p.screen.transcript.mounted[1]
        await p.until(lambda: body(view).endswith("y = 2\n```\n"))
        assert "writing" in p.text("#activity")
        desk.finish(chat, text="On the **north** bank [1].", citations=("1",), passages=(passage("1"),))
        await p.until(lambda: not p.screen.query_one("#activity").display)
        await p.until(lambda: body(view) == "On the **north** bank [1].")
        foot = shown(view.query_one(".message--foot"))
        assert "[1] report.pdf, page 2" in foot
        assert "24 tokens" in foot
        assert "12.0 tok/s" in foot


async def test_markup_in_any_text_is_only_text(desk):
    chat = desk.add_chat(NASTY, [NASTY, NASTY])
    desk.add_chat(f"{NASTY} 2", [NASTY])
    last = desk.path(chat)[-1]
    desk.edit(last.id, starred=True, citations=("1",), passages=(passage("1", title=NASTY, text=NASTY),))
    desk.states = (ModelState(Part.MODEL, ModelPhase.FAILED, NASTY),)
    async with person(desk, chat) as p:
        await p.until(lambda: NASTY in p.screen.query_one("#status").render().plain)
        assert NASTY in p.text("#failures")
        assert NASTY in shown(p.screen.transcript.mounted[0].query_one(".message--body"))
        assert body(p.screen.transcript.mounted[1]) == NASTY
        desk.tell(Notice(NASTY, Severity.ERROR))
        desk.tell(Notice(NASTY))
        await p.until(lambda: p.notices.count(NASTY) == 2)
        desk.files[f"/x/{NASTY}"] = NASTY
        await p.paste(f"/x/{NASTY}")
        await p.until(lambda: NASTY in shown(p.screen.chips.children[-1]))
        desk.job(NASTY, JobPhase.FAILED, detail=NASTY)
        await p.until(lambda: shown(p.screen.chips.children[-1]).count(NASTY) == 2)
        p.screen.chips.set_quote(last)
        assert NASTY in p.text("#pending-quote")
        desk.begin_answer(chat)
        desk.delta(chat, NASTY)
        await p.write(NASTY)
        await p.until(lambda: "queued" in p.text("#queue"))
        for opener in ("ctrl+l", "ctrl+t", "ctrl+p"):
            await p.press(opener)
            await p.until(lambda: p.app.screen is not p.screen)
            await p.press("escape")
            await p.until(lambda: p.app.screen is p.screen)
        desk.found = (passage("1", title=NASTY, text=NASTY),)
        await p.write(f"/search {NASTY}")
        await p.until(lambda: p.said("search", NASTY))
        await p.until(lambda: p.app.screen.query_one(PassageList).option_count == 1)
        await p.press("enter", "enter")
        await p.until(lambda: p.app.screen.query("TextScreen #heading, #heading"))
        assert p.app._exception is None


async def test_messages_wait_in_the_queue_in_order_and_are_sent(desk):
    desk.states = (ModelState(Part.MODEL, ModelPhase.FETCHING, "", 45_100_000, 98_200_000),)
    async with person(desk) as p:
        await p.until(lambda: "fetching model 45.1 of 98.2 MB (46 %)" in p.screen.query_one("#status").render().plain)
        for text in ("one", "two", "three", "four"):
            await p.write(text)
        await p.until(lambda: "and 1 more" in p.text("#queue"))
        assert [c[1] for c in desk.calls if c[0] == "send"] == ["one", "two", "three", "four"]
        desk.states = (ModelState(Part.MODEL, ModelPhase.LOADING, ""),)
        desk.tell(desk.states[0])
        await p.until(lambda: "loading model" in p.screen.query_one("#status").render().plain)
        desk.states = (replace(desk.states[0], phase=ModelPhase.READY, engine=ENGINE),)
        desk.tell(desk.states[0])
        await p.until(lambda: "SmolLM2-135M-Instruct" in p.screen.query_one("#status").render().plain)


async def test_what_could_not_be_sent_comes_back(desk):
    async with person(desk) as p:
        desk.send_error = "The disk is full [/b]; free some space and send again."
        await p.write("/file /x/a.pdf")
        await p.until(lambda: p.screen.chips.attachments)
        await p.write("precious")
        await p.until(lambda: p.screen.prompt.text == "precious")
        await p.until(lambda: desk.send_error in p.notices)
        assert [a.name for a in p.screen.chips.attachments] == ["a.pdf"]


async def test_when_the_desk_does_not_start_typed_text_stays(desk):
    desk.start_error = "chats.db is damaged; run aios-chat doctor."
    async with person(desk) as p:
        await p.until(lambda: desk.start_error in p.notices)
        await p.write("hello")
        await p.until(lambda: p.screen.prompt.text == "hello")
        await p.paste("pasted")
        await p.until(lambda: "pasted" in p.screen.prompt.text)


async def test_a_chat_that_is_gone_costs_a_sentence_and_opens_a_new_one(desk):
    async with person(desk, ChatId("cNone")) as p:
        await p.until(lambda: any("There is no chat cNone" in n for n in p.notices))
        await p.write("hello")
        await p.until(lambda: p.said("send", "hello", (), None))


async def test_unknown_commands_and_missing_files_cost_a_sentence_and_nothing_typed(desk):
    async with person(desk) as p:
        await p.write("/serch x")
        await p.until(lambda: any("did you mean /search" in n for n in p.notices))
        assert p.screen.prompt.text == "/serch x"
        p.screen.prompt.set_text("")
        await p.write("/file /x/missing [b].pdf")
        await p.until(lambda: "There is no file /x/missing [b].pdf." in p.notices)


async def test_scrolling_up_is_never_undone_by_new_text(desk):
    chat = long_chat(desk, 12)
    async with person(desk, chat, (80, 24)) as p:
        t = p.screen.transcript
        await p.until(lambda: t.max_scroll_y > 0 and t.is_vertical_scroll_end and t.following)
        desk.begin_answer(chat)
        await p.until(lambda: len(t.messages) == 13)
        desk.delta(chat, "start\n\n" * 5)
        await p.until(lambda: body(t.mounted[-1]).endswith("start\n\n") and t.is_vertical_scroll_end)
        assert t.following
        await p.press("pageup")
        await p.until(lambda: not t.following)
        at = t.scroll_y
        desk.delta(chat, "more\n\n" * 30)
        await p.until(lambda: p.screen.query_one("#new-below").display)
        assert t.scroll_y == at
        desk.finish(chat)
        await p.until(lambda: not p.screen.query_one("#activity").display)
        await p.until(lambda: "more" in body(t.mounted[-1]))
        assert t.scroll_y == at
        await p.press("ctrl+end")
        await p.until(lambda: t.following and t.is_vertical_scroll_end)
        await p.until(lambda: not p.screen.query_one("#new-below").display)


async def test_the_wheel_at_the_bottom_does_not_break_following(desk):
    chat = long_chat(desk, 12)
    async with person(desk, chat, (80, 24)) as p:
        t = p.screen.transcript
        await p.until(lambda: t.max_scroll_y > 0 and t.is_vertical_scroll_end)
        wheel = {"x": 5, "y": 5, "delta_x": 0, "delta_y": 1, "button": 0}
        modifiers = {"shift": False, "meta": False, "ctrl": False}
        t.post_message(keys.MouseScrollDown(t, **wheel, **modifiers))
        await p.pilot.pause()
        await p.until(lambda: t.following)
        t.post_message(keys.MouseScrollUp(t, **wheel, **modifiers))
        await p.until(lambda: not t.following)


async def test_a_long_chat_keeps_a_bounded_number_of_widgets_and_loads_its_past(desk):
    chat = long_chat(desk, 70)
    first = desk.path(chat)[0].id
    async with person(desk, chat, (80, 24)) as p:
        t = p.screen.transcript
        await p.until(lambda: t.is_vertical_scroll_end and t.max_scroll_y > 0)
        assert len(t.mounted) < 20
        for _ in range(40):
            if t.messages[0].id == first and t.mounted[0].message.id == first:
                break
            before = (t.mounted[0].message.id, len(t.messages))

            def brought_in(known=before):
                # A person who scrolls while messages come in is held in place, and scrolls again.
                t.scroll_to(y=0, animate=False, immediate=True)
                return (t.mounted[0].message.id, len(t.messages)) != known

            await p.until(brought_in)
            await p.until(lambda: t.scroll_y > 1 or t.mounted[0].message.id == first)
            assert len(t.mounted) <= MOUNTED
        assert t.mounted[0].message.id == first
        assert len(t.messages) == 70
        desk.begin_answer(chat)
        await p.until(lambda: len(t.messages) == 71)
        assert t.mounted[-1].message.id != t.messages[-1].id
        await p.press("ctrl+end")
        await p.until(lambda: t.mounted[-1].message.id == t.messages[-1].id and t.following)
        assert len(t.mounted) <= MOUNTED


async def test_a_favourite_far_back_is_opened_at_its_place(desk):
    chat = long_chat(desk, 60)
    target = desk.path(chat)[5].id
    desk.edit(target, starred=True)
    async with person(desk) as p:
        await p.press("ctrl+t")
        await p.until(lambda: p.app.screen is not p.screen)
        await p.until(lambda: p.app.screen.query_one("#list").option_count == 1)
        await p.press("enter")
        await p.until(lambda: p.screen.transcript.view(target) is not None)
        view = p.screen.transcript.view(target)
        await p.until(lambda: p.screen.transcript.region.overlaps(view.region))
        assert view.has_class("-selected")


async def test_evicted_messages_turn_grey_and_the_meter_shows_the_engines_numbers(desk):
    chat = desk.add_chat("t", ["q1", "a1", "q2", "a2"])
    m = [x.id for x in desk.path(chat)]
    async with person(desk, chat) as p:
        views = p.screen.transcript.mounted
        assert not any(v.evicted for v in views)
        assert "empty" in p.screen.query_one("#meter", Meter).render().plain
        desk.window(chat, {m[2]: 30, m[3]: 60})
        await p.until(lambda: [v.has_class("-evicted") for v in views] == [True, True, False, False])
        assert "out of the window" in shown(views[0].query_one(".message--head"))
        meter = p.screen.query_one("#meter", Meter).render().plain
        for words in ("128 of 512 tokens visible", "1,204 evicted", "11.8 MB f32", "21.4 tok/s", "in 12 tokens"):
            assert words in meter
        desk.window(chat, {m[1]: 5, m[2]: 30, m[3]: 60}, evicted_tokens=0)
        await p.until(lambda: [v.evicted for v in views] == [True, False, False, False])


async def test_a_chat_opened_while_it_answers_joins_in_without_a_gap(desk):
    chat = desk.add_chat("running", ["q"])
    async with person(desk) as p:
        desk.begin_answer(chat)
        desk.delta(chat, "one ")
        await p.pilot.pause()
        await p.press("ctrl+l")
        await p.until(lambda: p.app.screen is not p.screen)
        await p.until(lambda: p.app.screen.query_one("#list").option_count == 1)
        await p.press("enter")
        desk.delta(chat, "two ")
        await p.until(lambda: len(p.screen.transcript.mounted) == 2)
        desk.delta(chat, "three")
        await p.until(lambda: body(p.screen.transcript.mounted[1]) == "one two three")
        assert p.screen.answering
        desk.finish(chat, status=MessageStatus.FAILED)
        await p.until(lambda: "failed" in shown(p.screen.transcript.mounted[1].query_one(".message--foot")))


async def test_narrow_hides_the_panel_and_wide_brings_it_back(desk):
    chat = desk.add_chat("t", ["q1", "a1"])
    desk.edit(desk.path(chat)[1].id, passages=(passage("1"),))
    async with person(desk, chat) as p:
        desk.window(chat, {desk.path(chat)[1].id: 60})
        assert p.screen.query_one("#side").display
        await p.pilot.resize_terminal(80, 24)
        await p.until(lambda: not p.screen.query_one("#side").display)
        line = p.screen.query_one("#meter-line", Meter)
        await p.until(lambda: line.display and "98/512 visible" in line.render().plain)
        assert line.region.height == 1
        assert p.screen.transcript.region.height >= 14
        await p.write("/sources")
        await p.until(lambda: isinstance(p.app.screen, SourcesScreen))
        assert p.app.screen.query_one(PassageList).option_count == 1
        await p.press("escape")
        await p.pilot.resize_terminal(120, 36)
        await p.until(lambda: p.screen.query_one("#side").display and not line.display)


async def test_history_walks_and_keeps_what_was_sent(desk):
    async with person(desk) as p:
        await p.write("first")
        await p.write("second\nline")
        await p.press("up")
        assert p.screen.prompt.text == "second\nline"
        await p.press("up", "down", "down")
        assert p.screen.prompt.text == ""


async def test_a_link_is_shown_before_it_is_opened(desk):
    chat = desk.add_chat("t", ["q", "see [here](https://example.org/[x])"])
    async with person(desk, chat) as p:
        opened: list[str] = []
        p.app.open_url = lambda url, **_: opened.append(url)  # type: ignore[method-assign]
        view = p.screen.transcript.mounted[1].query_one(Markdown)
        view.post_message(Markdown.LinkClicked(view, "https://example.org/[x]"))
        await p.until(lambda: isinstance(p.app.screen, ConfirmScreen))
        assert opened == []
        await p.press("y")
        await p.until(lambda: opened == ["https://example.org/[x]"])


async def test_nothing_runs_at_idle(desk):
    chat = desk.add_chat("t", ["q", "a"])
    async with person(desk, chat) as p:
        desk.begin_answer(chat)
        desk.delta(chat, "text")
        desk.window(chat, {})
        desk.finish(chat)
        await p.until(lambda: len(p.screen.transcript.messages) == 3)
        await p.until(lambda: p.screen.transcript.messages[-1].status is MessageStatus.COMPLETE)
        await p.until(lambda: p.screen.window is not None and p.screen._window_timer is None)
        assert not p.screen.prompt.cursor_blink
        ours = [w for w in p.screen.walk_children(with_self=True) if type(w).__module__.startswith("app.")]
        for widget in ours:
            running = [t for t in widget._timers if t._repeat is None and t is not widget._auto_refresh_timer]
            allowed = 1 if widget in (p.screen, p.screen.prompt) else 0  # Textual's paused update and blink timers
            assert len(running) <= allowed, (widget, running)


async def test_the_bar_of_keys_follows_the_focus_and_its_keys_can_be_clicked(desk):
    chat = desk.add_chat("t", ["q", "a"])
    async with person(desk, chat) as p:
        bar = p.screen.query_one(KeyBar)
        assert bar.render().plain.startswith("Enter Send  ^Up Select")
        await p.press("ctrl+up")
        await p.until(lambda: bar.render().plain.startswith("s Star p Pin f Fork q Quote c Copy Enter Sources"))
        await p.pilot.click(KeyBar, offset=(3, 0))
        await p.until(lambda: p.said("star", desk.path(chat)[1].id, True))
        await p.press("escape")
        await p.until(lambda: "Send" in bar.render().plain)
        await p.pilot.resize_terminal(80, 24)
        await p.until(lambda: "Help" in bar.render().plain)
        assert len(bar.render().plain) <= 80


async def test_a_question_says_what_it_waits_for_and_a_failed_model_stands_in_full(desk):
    desk.states = (ModelState(Part.MODEL, ModelPhase.LOADING, "loading the model", 12, 30),)
    async with person(desk) as p:
        await p.until(lambda: "loading model 40 %" in str(p.screen.query_one("#status").render()))
        desk._commit(p.chat, "Are you there?", (), None)
        await p.until(lambda: "waiting for the model" in p.text("#activity"))
        why = "The model could not be downloaded [/b]: " + "go online, and send it again. " * 4
        desk.states = (ModelState(Part.MODEL, ModelPhase.FAILED, why),)
        desk.tell(desk.states[0])
        desk.tell(TurnsOver(p.chat))
        await p.until(lambda: not p.screen.query_one("#activity").display)
        assert why in p.text("#failures")
        assert "no model" in str(p.screen.query_one("#status").render())
        desk.states = (ModelState(Part.MODEL, ModelPhase.READY, "ready", engine=ENGINE),)
        desk.tell(desk.states[0])
        await p.until(lambda: not p.screen.query_one("#failures").display)
        desk._commit(p.chat, "And now?", (), None)
        await p.until(lambda: "looking for what" in p.text("#activity"))


async def test_indexing_anew_is_shown_beside_a_model_that_answers(desk):
    async with person(desk) as p:
        desk.tell(ModelState(Part.MEMORY, ModelPhase.READY, "indexing anew", 40, 200))
        await p.until(lambda: "indexing 40 of 200 passages" in str(p.screen.query_one("#status").render()))
        desk.tell(ModelState(Part.MEMORY, ModelPhase.READY, "indexing anew", 200, 200))
        await p.until(lambda: "SmolLM2" in str(p.screen.query_one("#status").render()))


async def test_a_chat_opened_with_a_queue_goes_on_with_it(desk):
    chat = desk.add_chat("roof", ["q", "a"])
    idle = desk.add_chat("boiler", ["q", "a"])
    desk.queues[chat] = [("and the gutter?", (), None)]
    async with person(desk, chat) as p:
        await p.until(lambda: p.said("resume", chat))
        assert "and the gutter?" in p.text("#queue")
    async with person(desk, idle) as p:
        assert not p.said("resume", idle)


async def test_what_the_model_sums_up_meanwhile_is_shown_while_it_does(desk):
    async with person(desk) as p:
        await p.until(lambda: p.screen.work.chat is not None)
        desk.tell(SummingUp(f"Trip {NASTY}"))
        await p.until(lambda: "summing up Trip [/b]" in p.text("#activity"))
        desk.tell(SummingUp(None))
        await p.until(lambda: not p.screen.query_one("#activity").display)
