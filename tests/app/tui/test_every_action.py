"""Each action of the table, done by a person: by key where it has one, and by its command where it has one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from driving import Person, person
from scripted import ScriptedDesk, passage
from textual.widgets import Input, OptionList

from app.actions import ACTIONS, BY_ID, ActionId
from app.events import JobPhase
from app.ids import ChatId
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.confirm import AskScreen, ConfirmScreen, TextScreen
from app.tui.screens.favorites import FavoritesScreen
from app.tui.screens.file_picker import FilePicker
from app.tui.screens.help import HelpScreen
from app.tui.screens.search import SearchScreen
from app.tui.widgets.sources import PassageList

DRIVES: dict[ActionId, Callable[[Person], Awaitable[None]]] = {}


def drives(action: ActionId):
    def mark(test: Callable[[Person], Awaitable[None]]):
        DRIVES[action] = test
        return test

    return mark


def chat_with(desk: ScriptedDesk) -> ChatId:
    desk.add_chat("[/b]Older [b]chat", ["old question", "old answer"])
    return desk.add_chat("Dams", ["When was it built?", "In 1926 [/x].", "By whom?", "By Ada [b]."])


def newest(p: Person):
    return p.desk.path(p.chat)[-1]


async def select(p: Person, ups: int = 1) -> None:
    await p.press("ctrl+up", *["up"] * (ups - 1))
    chosen = p.desk.path(p.chat)[-ups].id
    await p.until(lambda: (m := p.screen.transcript.selected) is not None and m.id == chosen)


def top(p: Person, kind: type) -> Callable[[], bool]:
    return lambda: isinstance(p.app.screen, kind)


@drives(ActionId.SEND)
async def send(p: Person):
    await p.press(*"hi", "enter")
    await p.until(lambda: p.said("send", "hi", (), None))
    assert p.screen.prompt.text == ""


@drives(ActionId.NEWLINE)
async def newline(p: Person):
    await p.press("a", "ctrl+j", "b", "shift+enter", "c")
    assert p.screen.prompt.text == "a\nb\nc"
    assert not [c for c in p.desk.calls if c[0] == "send"]


@drives(ActionId.STOP)
async def stop(p: Person):
    p.desk.begin_answer(p.chat)
    p.desk.delta(p.chat, "half an ans")
    await p.until(lambda: p.screen.answering)
    await p.press("escape")
    await p.until(lambda: p.said("stop", p.chat) and not p.screen.answering)
    view = p.screen.transcript.mounted[-1]
    await p.until(lambda: "stopped" in str(view.query_one(".message--foot").visual))
    assert view.message.text == "half an ans"
    await select(p)
    await p.press("escape")
    await p.until(lambda: p.screen.focused is p.screen.prompt)


@drives(ActionId.UNQUEUE)
async def unqueue(p: Person):
    p.desk.begin_answer(p.chat)
    await p.write("later [/b]")
    await p.until(lambda: "later [/b]" in p.text("#queue"))
    await p.press("up")
    await p.until(lambda: p.screen.prompt.text == "later [/b]")
    await p.until(lambda: not p.screen.query_one("#queue").display)
    await p.press("enter")
    await p.until(lambda: "later" in p.text("#queue"))
    await p.write("/unqueue")
    await p.until(lambda: p.screen.prompt.text == "later [/b]")


@drives(ActionId.ATTACH)
async def attach(p: Person):
    await p.press("ctrl+o")
    await p.until(top(p, FilePicker))
    await p.press("escape")
    await p.write("/file '/x/a [b].pdf'")
    await p.until(lambda: [a.name for a in p.screen.chips.attachments] == ["a [b].pdf"])


@drives(ActionId.DETACH)
async def detach(p: Person):
    await p.write("/file /x/a.pdf")
    await p.write("/file /x/b.pdf")
    await p.until(lambda: len(p.screen.chips.attachments) == 2)
    await p.press("backspace")
    await p.until(lambda: [a.name for a in p.screen.chips.attachments] == ["a.pdf"])
    await p.write("/detach")
    await p.until(lambda: not p.screen.chips.attachments and not p.screen.chips.display)


@drives(ActionId.NEW_CHAT)
async def new_chat(p: Person):
    before = p.chat
    await p.press("ctrl+n")
    await p.until(lambda: p.chat != before and not p.screen.transcript.messages)
    assert p.screen.query_one("#welcome").display


@drives(ActionId.CHATS)
async def chats(p: Person):
    before = p.chat
    await p.press("ctrl+l")
    await p.until(top(p, ChatsScreen))
    options = p.app.screen.query_one(OptionList)
    await p.until(lambda: options.option_count == 2)
    await p.press("down", "enter")
    await p.until(lambda: p.chat != before)
    await p.until(lambda: p.screen.query_one("#status").title == "[/b]Older [b]chat")


@drives(ActionId.FAVORITES)
async def favorites(p: Person):
    old = next(m for m in p.desk.tree.values() if m.text == "old answer")
    p.desk.edit(old.id, starred=True)
    await p.press("ctrl+t")
    await p.until(top(p, FavoritesScreen))
    await p.until(lambda: p.app.screen.query_one(OptionList).option_count == 1)
    await p.press("enter")
    await p.until(lambda: p.chat == old.chat and p.screen.transcript.selected is not None)
    assert p.screen.transcript.selected.id == old.id


@drives(ActionId.SEARCH)
async def search(p: Person):
    p.desk.found = (passage("1", text="found [/b] it"),)
    await p.press("ctrl+r")
    await p.until(top(p, SearchScreen))
    await p.press("escape")
    await p.write("/search some words")
    await p.until(top(p, SearchScreen))
    await p.until(lambda: p.said("search", "some words"))
    await p.until(lambda: p.app.screen.query_one(PassageList).option_count == 1)
    await p.press("enter", "enter")
    await p.until(top(p, TextScreen))


@drives(ActionId.DOCUMENTS)
async def documents(p: Person):
    await p.write("/documents")
    await p.until(top(p, TextScreen))


@drives(ActionId.BASE)
async def base(p: Person):
    await p.write("/base")
    await p.until(top(p, TextScreen))
    assert "This chat searches everything." in p.text("VerticalScroll Static")
    await p.press("escape")
    await p.until(lambda: not isinstance(p.app.screen, TextScreen))
    await p.write("/base house")
    await p.until(lambda: [b.name for b in p.desk.chosen.get(p.chat, ())] == ["house"])


@drives(ActionId.WEB)
async def web(p: Person):
    await p.write("/web How tall is the dam?")
    await p.until(lambda: p.said("send", "How tall is the dam?", ("A page",), None))


@drives(ActionId.RENAME)
async def rename(p: Person):
    await p.press("f2")
    await p.until(top(p, AskScreen))
    assert p.app.screen.query_one(Input).value == "Dams"
    await p.press("escape")
    await p.until(lambda: not isinstance(p.app.screen, AskScreen))
    await p.write("/rename New [/b] title")
    await p.until(lambda: p.screen.query_one("#status").title == "New [/b] title")


@drives(ActionId.DELETE)
async def delete(p: Person):
    before = p.chat
    await p.write("/delete")
    await p.until(top(p, ConfirmScreen))
    await p.press("escape")
    await p.until(lambda: not isinstance(p.app.screen, ConfirmScreen))
    assert not p.said("delete", before)
    await p.write("/delete")
    await p.until(top(p, ConfirmScreen))
    await p.press("y")
    await p.until(lambda: p.said("delete", before) and p.chat != before)
    await p.until(lambda: not p.screen.transcript.messages)


@drives(ActionId.EXPORT)
async def export(p: Person):
    await p.write("/export")
    await p.until(lambda: any("Dams.md" in n for n in p.notices))
    await p.write("/export")
    await p.until(lambda: any("is there already" in n for n in p.notices))


@drives(ActionId.WINDOW)
async def window(p: Person):
    p.desk.window(p.chat, {newest(p).id: 40})
    await p.until(lambda: p.screen.window is not None)
    await p.write("/window")
    await p.until(top(p, TextScreen))


@drives(ActionId.PANEL)
async def panel(p: Person):
    assert p.screen.query_one("#side").display
    await p.press("f3")
    await p.until(lambda: not p.screen.query_one("#side").display)
    assert p.screen.query_one("#meter-line").display
    await p.write("/panel")
    await p.until(lambda: p.screen.query_one("#side").display)


@drives(ActionId.SELECT)
async def select_newest(p: Person):
    await p.press("ctrl+up")
    await p.until(lambda: p.screen.transcript.selected == newest(p))
    assert p.screen.focused is p.screen.transcript


@drives(ActionId.OLDER)
async def older(p: Person):
    await select(p, 3)


@drives(ActionId.NEWER)
async def newer(p: Person):
    await select(p, 3)
    await p.press("down")
    await p.until(lambda: p.screen.transcript.selected == p.desk.path(p.chat)[-2])
    await p.press("j", "j")
    await p.until(lambda: p.screen.focused is p.screen.prompt and p.screen.transcript.selected is None)


@drives(ActionId.PAGE_UP)
async def page_up(p: Person):
    await p.pilot.resize_terminal(80, 14)
    await p.until(lambda: p.screen.transcript.max_scroll_y > 0 and p.screen.transcript.scroll_y > 0)
    await p.press("pageup")
    await p.until(lambda: p.screen.transcript.scroll_y == 0 and not p.screen.transcript.following)


@drives(ActionId.PAGE_DOWN)
async def page_down(p: Person):
    await page_up(p)
    await p.press("pagedown", "pagedown", "pagedown")
    await p.until(lambda: p.screen.transcript.following)


@drives(ActionId.LATEST)
async def latest(p: Person):
    await page_up(p)
    await p.press("ctrl+end")
    await p.until(lambda: p.screen.transcript.following)
    assert p.screen.transcript.is_vertical_scroll_end


@drives(ActionId.STAR)
async def star(p: Person):
    await select(p, 2)
    chosen = p.desk.path(p.chat)[-2].id
    await p.press("s")
    await p.until(lambda: p.said("star", chosen, True))
    await p.until(lambda: "★" in str(p.screen.transcript.view(chosen).query_one(".message--head").visual))
    await p.press("s")
    await p.until(lambda: p.said("star", chosen, False))
    await p.press("escape")
    await p.write("/star")
    await p.until(lambda: p.said("star", newest(p).id, True))


@drives(ActionId.PIN)
async def pin(p: Person):
    await select(p, 2)
    chosen = p.desk.path(p.chat)[-2].id

    def head() -> str:
        return str(p.screen.transcript.view(chosen).query_one(".message--head").visual)

    await p.press("p")
    await p.until(lambda: p.said("pin", p.chat, chosen) and "pinned" in head())
    await p.press("p")
    await p.until(lambda: p.said("unpin", p.chat, chosen) and "pinned" not in head())
    p.desk.pin_error = "what is pinned takes 900 tokens [/b]; 256 are allowed"
    await p.press("p")
    await p.until(lambda: any("900 tokens [/b]" in notice for notice in p.notices))
    assert "pinned" not in head()
    p.desk.pin_error = None
    await p.press("escape")
    await p.write("/pin")
    await p.until(lambda: p.said("pin", p.chat, newest(p).id))


@drives(ActionId.FORK)
async def fork(p: Person):
    before = p.chat
    await select(p, 3)
    point = p.desk.path(before)[-3].id
    await p.press("f")
    await p.until(lambda: p.said("fork", point) and p.chat != before)
    await p.until(lambda: [m.id for m in p.screen.transcript.messages][-1] == point)


@drives(ActionId.QUOTE)
async def quote(p: Person):
    await select(p, 3)
    quoted = p.desk.path(p.chat)[-3]
    await p.press("q")
    await p.until(lambda: p.screen.chips.quote == quoted and p.screen.focused is p.screen.prompt)
    await p.write("what about this?")
    await p.until(lambda: p.said("send", "what about this?", (), quoted.id))
    await p.until(lambda: len(p.screen.transcript.mounted) == 5)
    line = p.screen.transcript.mounted[-1].query_one("#quote")
    assert "In 1926 [/x]." in str(line.visual)
    assert p.screen.chips.quote is None


@drives(ActionId.COPY)
async def copy(p: Person):
    await select(p, 1)
    await p.press("c")
    await p.until(lambda: p.app.clipboard == "By Ada [b].")


@drives(ActionId.SOURCES)
async def sources(p: Person):
    p.desk.edit(newest(p).id, passages=(passage("1"),))
    await select(p, 1)
    await p.press("enter")
    listed = p.screen.query_one(PassageList)
    await p.until(lambda: len(listed.passages) == 1 and p.screen.focused is listed)
    await p.press("enter")
    await p.until(top(p, TextScreen))


@drives(ActionId.HELP)
async def help_(p: Person):
    await p.press("f1")
    await p.until(top(p, HelpScreen))
    await p.press("escape")
    await p.until(lambda: p.app.screen is p.screen)


@drives(ActionId.QUIT)
async def quit_(p: Person):
    await p.press("ctrl+l")
    await p.until(top(p, ChatsScreen))
    await p.press("ctrl+q")
    await p.until(lambda: p.desk.closed == 1 and p.app.return_code is not None)


def test_no_action_lacks_a_test():
    assert set(DRIVES) == set(ActionId)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.id.value)
async def test_action(action, desk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with person(desk, chat_with(desk)) as p:
        await DRIVES[action.id](p)


async def test_the_screen_handles_exactly_the_table_and_the_palette_lists_it(desk):
    async with person(desk, chat_with(desk)) as p:
        assert set(p.screen.commands.handlers) == set(BY_ID)
        titles = [c.title for c in p.app.get_system_commands(p.screen)]
        for action in ACTIONS:
            assert any(title.startswith(action.title) for title in titles)


async def test_the_help_screen_names_every_action_key_and_command():
    from app.tui.bindings import key_words
    from app.tui.screens.help import help_text

    text = help_text().plain
    for action in ACTIONS:
        assert action.title in text
        assert action.help in text
        assert action.usage in text
        if action.keys:
            assert key_words(action) in text


async def test_files_shown_in_chips_follow_their_reading(desk):
    async with person(desk) as p:
        await p.write("/file /x/[a].pdf")
        await p.until(lambda: p.screen.chips.attachments)
        chip = p.screen.chips.children[-1]
        for phase, words in (
            (JobPhase.OCR, "recognising 2/5"),
            (JobPhase.DONE, "7 passages"),
        ):
            desk.job("[a].pdf", phase, 2, 5, passages=7)
            await p.until(lambda w=words: w in str(chip.visual))
        assert "[a].pdf" in str(chip.visual)
