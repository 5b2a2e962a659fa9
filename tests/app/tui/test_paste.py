"""Pastes and drops."""

from __future__ import annotations

import asyncio

from driving import person
from textual import events

from app.ports import DeskError


async def test_pasted_text_is_inserted_where_the_cursor_was(desk):
    async with person(desk) as p:
        await p.press("a", "b", "left")
        await p.paste("[/b]x\r\ny\rz")
        await p.until(lambda: p.screen.prompt.text == "a[/b]x\ny\nzb")
        assert p.said("drop", "[/b]x\ny\nz")


async def test_typing_on_while_a_paste_is_looked_at_keeps_the_order(desk):
    gate = asyncio.Event()
    plain = desk.drop

    async def slow(chat, pasted):
        await gate.wait()
        return await plain(chat, pasted)

    desk.drop = slow
    async with person(desk) as p:
        await p.press("a")
        await p.paste("PASTED")
        await p.press("z", "enter")
        assert not [c for c in desk.calls if c[0] == "send"]
        gate.set()
        await p.until(lambda: p.said("send", "aPASTEDz", (), None))


async def test_dropped_files_become_chips_and_go_with_the_message(desk):
    desk.files |= {"/x/a b.pdf": "a b.pdf", "/x/[c].png": "[c].png"}
    async with person(desk) as p:
        await p.press("h", "i")
        p.app.post_message(events.Paste("/x/a b.pdf "))
        p.app.post_message(events.Paste("/x/[c].png "))
        await p.until(lambda: [a.name for a in p.screen.chips.attachments] == ["a b.pdf", "[c].png"])
        assert p.said("drop", "/x/a b.pdf\n/x/[c].png")
        assert p.screen.prompt.text == "hi"
        await p.press("enter")
        await p.until(lambda: p.said("send", "hi", ("a b.pdf", "[c].png"), None))
        assert not p.screen.chips.attachments
        await p.until(lambda: "[c].png" in str(p.screen.transcript.mounted[0].query_one("#files").visual))


async def test_a_drop_while_the_terminal_is_in_the_background_is_not_lost(desk):
    desk.files["/x/a.pdf"] = "a.pdf"
    async with person(desk) as p:
        p.app.post_message(events.AppBlur())
        await p.until(lambda: p.screen.focused is None)
        await p.paste("/x/a.pdf")
        await p.until(lambda: p.screen.chips.attachments)


async def test_a_path_that_names_nothing_stays_as_text_with_one_line(desk):
    desk.missing["/x/gone.pdf"] = "There is no file /x/gone.pdf on this machine."
    async with person(desk) as p:
        await p.paste("/x/gone.pdf")
        await p.until(lambda: p.screen.prompt.text == "/x/gone.pdf")
        await p.until(lambda: desk.missing["/x/gone.pdf"] in p.notices)


async def test_a_typed_path_is_a_drop_too_and_a_message_when_it_is_none(desk):
    desk.files["/x/a.pdf"] = "a.pdf"
    async with person(desk) as p:
        await p.write("/x/a.pdf")
        await p.until(lambda: p.screen.chips.attachments)
        await p.write("/etc/hosts: what is it?")
        await p.until(lambda: p.said("send", "/etc/hosts: what is it?", ("a.pdf",), None))


async def test_a_failing_drop_still_lands_its_text(desk):
    async def broken(chat, pasted):
        raise DeskError("The staging folder is full.")

    desk.drop = broken
    async with person(desk) as p:
        await p.paste("precious")
        await p.until(lambda: p.screen.prompt.text == "precious")
        await p.until(lambda: "The staging folder is full." in p.notices)


async def test_a_file_without_a_question_waits_for_one(desk):
    desk.files["/x/a.pdf"] = "a.pdf"
    async with person(desk) as p:
        await p.paste("/x/a.pdf")
        await p.until(lambda: p.screen.chips.attachments)
        await p.press("enter")
        await p.until(lambda: any("Write a question" in n for n in p.notices))
        assert p.screen.chips.attachments
