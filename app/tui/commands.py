"""What each action of the table does on the chat screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.actions import ActionId
from app.drop.fetch import as_url
from app.events import Severity
from app.host.wire import SourceKind
from app.ids import ChatId
from app.store.types import Message
from app.tui.chat_work import ChatWork
from app.tui.screens.chats import ChatsScreen, delete_question
from app.tui.screens.confirm import AskScreen, TextScreen
from app.tui.screens.favorites import FavoritesScreen, Wish
from app.tui.screens.file_picker import FilePicker
from app.tui.screens.help import HelpScreen
from app.tui.screens.search import SearchScreen
from app.tui.screens.sources import passage_screen
from app.tui.text import clock, plural, typed_path
from app.tui.widgets.meter import long_facts
from app.tui.work import start, tell

if TYPE_CHECKING:
    from app.tui.screens.chat import ChatScreen

CLIPBOARD_LIMIT = 100_000
"""Bytes: terminals drop a longer OSC 52 without a word."""


class Commands:
    """Runs actions by id; `handlers` has one entry for each action of the table."""

    def __init__(self, screen: ChatScreen, work: ChatWork) -> None:
        self.screen = screen
        self.work = work
        self.handlers: dict[ActionId, Callable[[str], Awaitable[None]]] = {
            ActionId.SEND: self._send,
            ActionId.NEWLINE: self._newline,
            ActionId.STOP: self._stop,
            ActionId.UNQUEUE: self._unqueue,
            ActionId.ATTACH: self._attach,
            ActionId.DETACH: self._detach,
            ActionId.NEW_CHAT: self._new_chat,
            ActionId.CHATS: self._chats,
            ActionId.FAVORITES: self._favorites,
            ActionId.SEARCH: self._search,
            ActionId.DOCUMENTS: self._documents,
            ActionId.BASE: self._base,
            ActionId.WEB: self._web,
            ActionId.RENAME: self._rename,
            ActionId.DELETE: self._delete,
            ActionId.EXPORT: self._export,
            ActionId.WINDOW: self._window,
            ActionId.PANEL: self._panel,
            ActionId.SELECT: self._older,
            ActionId.OLDER: self._older,
            ActionId.NEWER: self._newer,
            ActionId.PAGE_UP: self._page_up,
            ActionId.PAGE_DOWN: self._page_down,
            ActionId.LATEST: self._latest,
            ActionId.STAR: self._star,
            ActionId.PIN: self._pin,
            ActionId.FORK: self._fork,
            ActionId.QUOTE: self._quote,
            ActionId.COPY: self._copy,
            ActionId.SOURCES: self._sources,
            ActionId.HELP: self._help,
            ActionId.QUIT: self._quit,
        }

    async def run(self, action: ActionId, argument: str = "") -> None:
        """Run one action; `argument` is what followed its command."""
        await self.handlers[action](argument)

    # --- writing ----------------------------------------------------------------------------------

    async def _send(self, _: str) -> None:
        self.screen.prompt.submit()

    async def _newline(self, _: str) -> None:
        self.screen.prompt.insert("\n")

    async def _stop(self, _: str) -> None:
        if self.screen.answering:
            start(self.screen, self.work.stop(), "stop")
        if not self.screen.streaming:
            self.screen.to_prompt()

    async def _unqueue(self, _: str) -> None:
        start(self.screen, self.work.unqueue(), "unqueue")

    async def _attach(self, argument: str) -> None:
        if argument:
            start(self.screen, self.work.attach(as_url(argument) or typed_path(argument)), "attach")
        else:
            start(self.screen, self._pick(), "pick", exclusive=True)

    async def _pick(self) -> None:
        path = await self.screen.app.push_screen_wait(FilePicker(Path.cwd()))
        if path is not None:
            await self.work.attach(path)

    async def _detach(self, _: str) -> None:
        await self.screen.chips.detach_last()

    # --- chats ------------------------------------------------------------------------------------

    async def _new_chat(self, _: str) -> None:
        start(self.screen, self.work.new_chat(), "open", exclusive=True)

    async def _chats(self, _: str) -> None:
        start(self.screen, self._pick_chat(), "pick", exclusive=True)

    async def _pick_chat(self) -> None:
        current = self.work.chat.id if self.work.chat is not None else None
        chosen = await self.screen.app.push_screen_wait(ChatsScreen(self.work.desk, current))
        if chosen is not None:
            await self.work.open_chat(chosen)

    async def _favorites(self, _: str) -> None:
        start(self.screen, self._pick_favorite(), "pick", exclusive=True)

    async def _pick_favorite(self) -> None:
        choice = await self.screen.app.push_screen_wait(FavoritesScreen(self.work.desk))
        if choice is None:
            return
        if choice.wish is Wish.QUOTE:
            self.screen.post_message(ChatWork.Quoted(choice.message))
        else:
            await self.work.open_chat(choice.message.chat, choice.message.id)

    async def _search(self, argument: str) -> None:
        start(self.screen, self._pick_passage(argument), "pick", exclusive=True)

    async def _pick_passage(self, words: str) -> None:
        passage = await self.screen.app.push_screen_wait(SearchScreen(self.work.desk, words))
        if passage is None:
            return
        if passage.source_kind is SourceKind.CHAT:
            await self.work.open_chat(ChatId(passage.source_id), passage.message)
        else:
            await self.screen.app.push_screen(passage_screen(passage))

    async def _documents(self, _: str) -> None:
        start(self.screen, self._list_documents(), "documents", exclusive=True)

    async def _list_documents(self) -> None:
        lines = [
            f"{d.name}   {plural(d.passages, 'passage')}"
            + (f", {plural(d.pages, 'page')}" if d.pages is not None else "")
            + f"   {clock(d.added)}\n    {d.origin}"
            for d in await self.work.desk.documents()
        ]
        await self.screen.app.push_screen(TextScreen("Documents", "\n".join(lines) or "No file was read yet."))

    async def _web(self, argument: str) -> None:
        if argument:
            start(self.screen, self.work.ask_web(argument), "send")
        else:
            tell(self.screen, "Write the question after /web.")

    async def _base(self, argument: str) -> None:
        work = self._choose_bases(argument.split()) if argument else self._list_bases()
        start(self.screen, work, "bases", exclusive=True)

    async def _choose_bases(self, names: list[str]) -> None:
        chosen = await self.work.choose_bases(names)
        what = f"the chats and {', '.join(base.name for base in chosen)}" if chosen else "everything"
        tell(self.screen, f"This chat searches {what}.")

    async def _list_bases(self) -> None:
        here, every = await self.work.bases()
        lines = [f"{'*' if base in here else ' '} {base.name}\n    " + "\n    ".join(base.paths) for base in every]
        foot = "* this chat searches only these, and the chats" if here else "This chat searches everything."
        none = "There is no base yet: aios-chat base add NAME FOLDER makes one."
        await self.screen.app.push_screen(TextScreen("Knowledge bases", "\n".join([*lines, foot]) if every else none))

    async def _rename(self, argument: str) -> None:
        start(self.screen, self._name(argument), "rename", exclusive=True)

    async def _name(self, title: str) -> None:
        if not title:
            before = self.work.chat.title if self.work.chat is not None else ""
            asked = await self.screen.app.push_screen_wait(AskScreen("A title for this chat", before))
            if asked is None:
                return
            title = asked
        await self.work.rename(title)

    async def _delete(self, _: str) -> None:
        start(self.screen, self._ask_delete(), "delete", exclusive=True)

    async def _ask_delete(self) -> None:
        chat = self.work.chat
        if chat is None or not self.screen.transcript.messages:
            tell(self.screen, "This chat is not stored: there is nothing to delete.")
        elif await self.screen.app.push_screen_wait(delete_question(chat)):
            await self.work.delete()

    async def _export(self, argument: str) -> None:
        start(self.screen, self._write(argument), "export")

    async def _write(self, argument: str) -> None:
        path = await self.work.export(argument)
        tell(self.screen, f"Written to {path}")

    # --- looking ----------------------------------------------------------------------------------

    async def _window(self, _: str) -> None:
        window = self.screen.window
        text = long_facts(window) if window is not None else "The model has read nothing of this chat yet."
        await self.screen.app.push_screen(TextScreen("The window", text))

    async def _panel(self, _: str) -> None:
        if self.screen.has_class("-narrow"):
            await self._sources("")
        else:
            self.screen.toggle_class("-no-panel")

    async def _page_up(self, _: str) -> None:
        self.screen.transcript.page(-1)

    async def _page_down(self, _: str) -> None:
        self.screen.transcript.page(1)

    async def _latest(self, _: str) -> None:
        await self.screen.transcript.latest()

    async def _older(self, _: str) -> None:
        transcript = self.screen.transcript
        if await transcript.step(-1):
            transcript.focus(scroll_visible=False)

    async def _newer(self, _: str) -> None:
        if not await self.screen.transcript.step(1):
            await self.screen.transcript.latest()
            self.screen.to_prompt()

    # --- on a message -----------------------------------------------------------------------------

    def _target(self) -> Message | None:
        message = self.screen.target()
        if message is None:
            tell(self.screen, "There is no message yet.")
        return message

    async def _star(self, _: str) -> None:
        if (message := self._target()) is not None:
            start(self.screen, self.work.star(message), "star")

    async def _pin(self, _: str) -> None:
        if (message := self._target()) is not None:
            start(self.screen, self.work.pin(message), "pin")

    async def _fork(self, _: str) -> None:
        if (message := self._target()) is not None:
            start(self.screen, self._fork_at(message), "open", exclusive=True)

    async def _fork_at(self, message: Message) -> None:
        await self.work.fork(message)
        tell(self.screen, "This is a fork: it shares everything up to here, and what follows is its own.")

    async def _quote(self, _: str) -> None:
        if (message := self._target()) is not None:
            self.screen.quote(message)

    async def _copy(self, _: str) -> None:
        if (message := self._target()) is None:
            return
        if len(message.text.encode()) > CLIPBOARD_LIMIT:
            tell(self.screen, "It is too long for a terminal's clipboard; /export writes it.", Severity.WARNING)
            return
        self.screen.app.copy_to_clipboard(message.text)
        tell(self.screen, "Sent to the terminal's clipboard.")

    async def _sources(self, _: str) -> None:
        if (message := self._target()) is not None:
            start(self.screen, self.work.sources(message), "sources", exclusive=True)

    # --- the program ------------------------------------------------------------------------------

    async def _help(self, _: str) -> None:
        await self.screen.app.push_screen(HelpScreen())

    async def _quit(self, _: str) -> None:
        await self.screen.app.action_quit()
