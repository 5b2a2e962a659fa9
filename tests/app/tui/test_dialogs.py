"""The modal screens, beyond what the table's tests do."""

from __future__ import annotations

import pytest
from driving import person
from scripted import passage
from textual.containers import VerticalScroll
from textual.widgets import Input, OptionList

from app.events import JobPhase, ModelPhase, ModelState, Part
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.confirm import AskScreen, ConfirmScreen, PasswordScreen
from app.tui.screens.file_picker import FilePicker, entries
from app.tui.widgets.sources import PassageList


async def test_chats_are_filtered_renamed_and_deleted_in_the_list(desk):
    desk.add_chat("Apples", ["a"])
    pears = desk.add_chat("Pears [b]", ["a"])
    async with person(desk) as p:
        await p.press("ctrl+l")
        await p.until(lambda: isinstance(p.app.screen, ChatsScreen))
        listing = p.app.screen
        options = listing.query_one(OptionList)
        await p.until(lambda: options.option_count == 2)
        await p.press("slash", "p", "e", "a", "enter")
        await p.until(lambda: options.option_count == 1 and listing.focused is options)
        await p.press("r")
        await p.until(lambda: isinstance(p.app.screen, AskScreen))
        p.app.screen.query_one(Input).value = "Pearls [/]"
        await p.press("enter")
        await p.until(lambda: p.said("rename", "Pearls [/]") and p.app.screen is listing)
        await p.press("d")
        await p.until(lambda: isinstance(p.app.screen, ConfirmScreen))
        await p.press("n")
        await p.until(lambda: p.app.screen is listing)
        await p.press("d")
        await p.until(lambda: isinstance(p.app.screen, ConfirmScreen))
        await p.press("enter")
        await p.until(lambda: p.said("delete", pears))
        await p.until(lambda: options.option_count == 0 and listing.query_one("#none").display)


async def test_deleting_the_open_chat_from_the_list_opens_a_new_one(desk):
    chat = desk.add_chat("Open", ["a", "b"])
    async with person(desk, chat) as p:
        await p.press("ctrl+l")
        await p.until(lambda: isinstance(p.app.screen, ChatsScreen))
        await p.until(lambda: p.app.screen.query_one(OptionList).option_count == 1)
        await p.press("d")
        await p.until(lambda: isinstance(p.app.screen, ConfirmScreen))
        await p.press("y")
        await p.until(lambda: p.chat != chat and not p.screen.transcript.messages)


async def test_search_says_when_the_memory_is_not_up(desk):
    async with person(desk) as p:
        await p.write("/search down")
        await p.until(lambda: p.app.screen is not p.screen)
        await p.until(lambda: "not up yet" in p.text("#outcome"))


async def test_search_says_when_it_knows_only_the_words_of_chats(desk):
    async with person(desk) as p:
        await p.write("/search river")
        await p.until(lambda: p.app.screen is not p.screen)
        await p.until(lambda: "the memory is not up" in p.text("#outcome"))
        await p.press("escape")
        desk.states = (*desk.states, ModelState(Part.MEMORY, ModelPhase.READY, "7 passages"))
        await p.write("/search river")
        await p.until(lambda: p.app.screen is not p.screen)
        await p.until(lambda: " ms" in p.text("#outcome"))
        assert "not up" not in p.text("#outcome")


async def test_a_file_is_found_by_completion(desk, tmp_path, monkeypatch):
    (tmp_path / "docs [b]").mkdir()
    (tmp_path / "docs [b]" / "report.pdf").write_bytes(b"x" * 2000)
    (tmp_path / "docs [b]" / "other.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    async with person(desk) as p:
        await p.press("ctrl+o")
        await p.until(lambda: isinstance(p.app.screen, FilePicker))
        box = p.app.screen.query_one(Input)
        await p.until(lambda: p.app.screen.query_one(OptionList).option_count == 1)
        await p.press("d", "tab")
        await p.until(lambda: box.value.endswith("docs [b]/"))
        await p.until(lambda: p.app.screen.query_one(OptionList).option_count == 2)
        await p.press("r")
        await p.until(lambda: p.app.screen.query_one(OptionList).option_count == 1)
        await p.press("tab", "enter")
        await p.until(lambda: p.said("attach", str(tmp_path / "docs [b]" / "report.pdf")))
        await p.until(lambda: p.screen.chips.attachments)


def test_entries_are_folders_first_and_hidden_ones_only_when_asked(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("a.txt", ".hidden", "C.txt"):
        (tmp_path / name).write_text("x")
    assert [e.name for e in entries(f"{tmp_path}/")] == ["b/", "a.txt", "C.txt"]
    assert [e.name for e in entries(f"{tmp_path}/.h")] == [".hidden"]
    assert [e.name for e in entries(f"{tmp_path}/c")] == ["C.txt"]


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 36)])
@pytest.mark.parametrize(
    "opener", ["/chats", "/favorites", "/file", "/search dam", "/help", "/window", "/documents", "/sources"]
)
async def test_a_dialog_shows_its_keys_and_cuts_no_list_at_any_size(desk, opener, size):
    for number in range(30):
        chat = desk.add_chat(f"chat {number} with a title of some length", ["q", "a"])
        desk.edit(desk.path(chat)[-1].id, starred=True, text="a long answer " * 12)
    last = desk.path(chat)[-1]
    desk.edit(last.id, passages=tuple(passage(str(n)) for n in range(20)))
    desk.found = tuple(passage(str(n)) for n in range(20))
    async with person(desk, chat, size=size) as p:
        await p.write(opener)
        # Where there is room, the sources stand in the side panel and no dialog opens.
        await p.until(lambda: p.app.screen is not p.screen or p.screen.focused is p.screen.query_one(PassageList))
        if p.app.screen is p.screen:
            return
        dialog = p.app.screen
        lists = [*dialog.query(OptionList), *dialog.query(VerticalScroll)]
        await p.until(lambda: not dialog.query(PassageList) or dialog.query_one(PassageList).option_count == 20)
        box, keys = dialog.query_one("#box"), dialog.query_one("#keys")
        await p.until(lambda: keys.region.height > 0 and all(part.region.height > 0 for part in lists))
        assert box.content_region.contains_region(keys.region)
        assert all(part.region.bottom <= keys.region.y for part in lists)


async def test_the_password_of_an_encrypted_file_is_asked_for_and_not_shown(desk):
    async with person(desk) as p:
        locked = desk.job("safe.pdf", JobPhase.FAILED, needs_password=True, detail="safe.pdf needs a password.")
        await p.until(lambda: isinstance(p.app.screen, PasswordScreen))
        assert p.app.screen.query_one(Input).password
        await p.press("s", "3", "enter")
        await p.until(lambda: p.said("unlock", locked.id, "s3"))
        desk.job("other.pdf", JobPhase.FAILED, needs_password=True, detail="other.pdf needs a password.")
        await p.until(lambda: isinstance(p.app.screen, PasswordScreen))
        await p.press("escape")
        await p.until(lambda: p.app.screen is p.screen)
        assert [call[0] for call in desk.calls].count("unlock") == 1


async def test_a_web_address_is_attached_as_it_was_typed(desk):
    async with person(desk) as p:
        await p.write("/file https://example.org/a?b=1")
        await p.until(lambda: p.said("attach", "https://example.org/a?b=1"))
        await p.until(lambda: p.screen.chips.attachments)
