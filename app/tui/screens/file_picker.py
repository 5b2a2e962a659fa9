"""Choose a file: a path with completion over the folders of the disk."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.tui.screens.dialog import Dialog
from app.tui.text import file_size, one_line, typed_path
from app.tui.work import start

SHOWN = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder; `size` in bytes, None for a folder."""

    path: str
    name: str
    size: int | None


def entries(typed: str) -> list[Entry]:
    """What a typed path may become: the entries of its folder that begin as it ends, folders first.

    Hidden ones only when the typed part begins with a dot. Raises OSError when the folder cannot be read.
    """
    folder, part = os.path.split(typed)
    folder = os.path.expanduser(folder) if folder else os.curdir
    found: list[Entry] = []
    with os.scandir(folder) as scan:
        for item in scan:
            if not item.name.casefold().startswith(part.casefold()):
                continue
            if item.name.startswith(".") and not part.startswith("."):
                continue
            if item.is_dir():
                found.append(Entry(os.path.join(os.path.split(typed)[0], item.name) + os.sep, item.name + os.sep, None))
            elif item.is_file():
                path = os.path.join(os.path.split(typed)[0], item.name)
                found.append(Entry(path, item.name, item.stat().st_size))
    found.sort(key=lambda e: (e.size is not None, e.name.casefold()))
    return found[:SHOWN]


class FilePicker(Dialog[Path | None]):
    """A path with completion. Result: the file, or None."""

    DEFAULT_CSS = """
    FilePicker > #box { height: 80%; OptionList { height: 1fr; max-height: 1fr; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete", show=False, priority=True),
        Binding("down", "to_list", "List", show=False),
    ]
    heading = "Attach a file"
    keys = "Tab completes    Enter opens a folder or takes the file    Esc closes"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._start = os.path.join(str(folder), "")
        self._entries: list[Entry] = []

    def body(self) -> ComposeResult:
        """Path, reason, list."""
        yield Input(self._start, select_on_focus=False)
        yield Static("", classes="empty", id="why")
        yield OptionList(markup=False)

    def on_mount(self) -> None:
        """Type at the end of the path."""
        self.query_one("#why").display = False
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        start(self, self._list(event.value), "list", exclusive=True)

    async def _list(self, typed: str) -> None:
        why = ""
        try:
            found = await asyncio.to_thread(entries, typed)
        except (OSError, ValueError) as error:
            found, why = [], f"This folder cannot be read: {getattr(error, 'strerror', None) or error}."
        self._entries = found
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(self._line(entry)) for entry in found])
        line = self.query_one("#why", Static)
        line.update(Content(why))
        line.display = bool(why)

    @staticmethod
    def _line(entry: Entry) -> Content:
        if entry.size is None:
            return Content.styled(one_line(entry.name, 80), "bold")
        return Content.assemble(one_line(entry.name, 80), (f"   {file_size(entry.size)}", "$foreground 60%"))

    def action_complete(self) -> None:
        """Write what all matches share; a single match whole."""
        if self._entries:
            # By characters, as shells complete, not by whole folders.
            shared = os.path.commonprefix([entry.path for entry in self._entries])  # noqa: RUF071
            self._write(shared if len(shared) > len(self.query_one(Input).value) else self._entries[0].path)

    def action_to_list(self) -> None:
        """From the path to the list."""
        options = self.query_one(OptionList)
        options.focus()
        options.highlighted = 0 if self._entries else None

    def _write(self, path: str) -> None:
        box = self.query_one(Input)
        box.value = path
        box.cursor_position = len(path)
        box.focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        entry = self._entries[event.option_index]
        if entry.size is None:
            self._write(entry.path)
        else:
            self.dismiss(typed_path(entry.path))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        start(self, self._take(event.value), "take", exclusive=True)

    async def _take(self, typed: str) -> None:
        path = typed_path(typed)
        if await asyncio.to_thread(path.is_dir):
            self._write(os.path.join(typed, ""))
        else:
            # A file that is missing or unreadable gets its sentence from the desk.
            self.dismiss(path)
