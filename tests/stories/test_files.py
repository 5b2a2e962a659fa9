"""Files dropped as terminals paste them; questions about each bring back the right page."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

from app.store.types import MessageStatus
from tests.stories.papers import write_encrypted, write_report, write_screenshot
from tests.stories.people import Person, at_the_desk


def escaped(path: Path) -> str:
    """As iTerm2 and Ghostty paste it."""
    return "".join("\\" + c if c in " ()'&" else c for c in str(path))


@pytest.mark.slow
async def test_files_are_dropped_and_asked_about(tmp_path: Path) -> None:
    desktop = tmp_path / "my desktop"
    desktop.mkdir()
    report = write_report(desktop / "harbour report (final).pdf")
    screenshot = write_screenshot(desktop / "Screenshot 2026-11-30 at 8.15.png")
    notes = desktop / "notes.md"
    notes.write_text("# Garden\n\nThe tomatoes are watered by Selma.\n\n# Car\n\nThe car is a blue Saab.\n")
    code = desktop / "prices.py"
    code.write_text("def ticket_price(age):\n    # Children below 12 pay nothing.\n    return 0 if age < 12 else 9\n")

    async with at_the_desk(tmp_path / "home", window_tokens=1024, max_tokens=48) as person:
        chat = (await person.desk.new_chat()).chat.id
        one = await person.desk.drop(chat, escaped(report))
        assert [a.name for a in one.attachments] == [report.name]
        two = await person.desk.drop(chat, f"{shlex.quote(str(screenshot))} file://{quote(str(notes))} ")
        assert [a.name for a in two.attachments] == [screenshot.name, notes.name]
        three = await person.desk.drop(chat, f'"{code}"\r')
        assert [a.name for a in three.attachments] == [code.name]
        dropped = one.attachments + two.attachments + three.attachments

        answer = await person.ask(chat, "Who is the director of the museum?", attachments=dropped)
        assert not person.failed_jobs()
        assert answer.status is MessageStatus.COMPLETE
        assert brought_back(person, report.name, 1)
        assert "Lindqvist" in answer.text

        await person.ask(chat, "Who repaired the boiler?")
        assert brought_back(person, report.name, 2)
        await person.ask(chat, "Where does the spare key of the cellar hang?")
        assert brought_back(person, report.name, 2)
        await person.ask(chat, "Which seat is booked in the train to Gothenburg?")
        assert brought_back(person, screenshot.name)
        await person.ask(chat, "Who waters the tomatoes?")
        assert brought_back(person, notes.name)
        await person.ask(chat, "What does ticket_price return for a child?")
        assert brought_back(person, code.name)

        # The bytes were taken at once: the originals may go.
        for path in (report, screenshot):
            path.unlink()
        found = await person.desk.search("boiler repaired cellar")
        assert (found.passages[0].title, found.passages[0].page) == (report.name, 2)


@pytest.mark.slow
async def test_bad_files_cost_one_sentence_each(tmp_path: Path) -> None:
    empty, locked, broken = tmp_path / "empty.txt", tmp_path / "locked.pdf", tmp_path / "broken.pdf"
    empty.write_bytes(b"")
    write_encrypted(locked)
    broken.write_bytes(b"%PDF-1.7\n" + bytes(range(256)) * 4)
    good = tmp_path / "good.txt"
    good.write_text("The heron nests by the mill.")
    async with at_the_desk(tmp_path / "home") as person:
        chat = (await person.desk.new_chat()).chat.id
        missing = await person.desk.drop(chat, str(tmp_path / "nothing.pdf"))
        assert not missing.attachments
        assert "nothing.pdf" in missing.explanation
        dropped = await person.desk.drop(chat, f"{empty} {locked} {broken} {good}")
        await person.desk.indexed()
        problems = [dropped.explanation, *person.failed_jobs()]
        for name in ("empty.txt", "password", "broken.pdf"):
            assert any(name in problem for problem in problems), (name, problems)
        found = await person.desk.search("heron")
        assert [p.title for p in found.passages] == ["good.txt"]


def brought_back(person: Person, title: str, page: int | None = None) -> bool:
    """Whether the first passage that went with the last question is of that file and page; or, when nothing went with
    it because what fits is in the window already, whether an earlier question brought it there."""
    *earlier, last = person.recalls
    if last.passages:
        return (last.passages[0].title, last.passages[0].page) == (title, page)
    assert last.reason == "what fits is in the window already", last.reason
    return (title, page) in {(p.title, p.page) for recall in earlier for p in recall.passages}
