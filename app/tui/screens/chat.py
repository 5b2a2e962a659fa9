"""The chat: transcript, prompt, window meter, sources. Applies what the desk tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import BindingType
from textual.message import Message as Event

from app import events
from app.actions import ActionId, Context
from app.events import Severity
from app.host.wire import Role
from app.ports import Dropped
from app.slash import CommandError, parse_command
from app.store.types import Attachment, Message
from app.tui.bindings import bindings
from app.tui.chat_work import ChatWork
from app.tui.glyphs import GLYPHS
from app.tui.screens.chat_layout import ChatLayout
from app.tui.screens.confirm import ConfirmScreen, PasswordScreen
from app.tui.screens.sources import passage_screen
from app.tui.text import evicted, job_of, one_line, plural
from app.tui.widgets.chips import Chip
from app.tui.widgets.hints import CommandHints
from app.tui.widgets.keybar import KeyBar
from app.tui.widgets.meter import Meter
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.sources import PassageList, SourcesPanel
from app.tui.widgets.status import Activity, Failures, StatusBar
from app.tui.widgets.transcript import Transcript
from app.tui.work import start, tell

if TYPE_CHECKING:
    from textual.widgets import Markdown

    from app.tui.commands import Commands

_PATH = re.compile(r"""\s*(['"]?(/|~/|[A-Za-z]:\\|\\\\)|file:)[^\n]*\Z""")


class ChatScreen(ChatLayout):
    """The main screen."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(Context.GLOBAL)

    @dataclass
    class Happened(Event):
        """The desk told something."""

        event: events.Event

    def __init__(self, work: ChatWork) -> None:
        super().__init__(work)
        self._unheard = False
        """Whether a question was just sent and nothing was heard of its answer yet."""

    @cached_property
    def commands(self) -> Commands:
        """What the actions do."""
        from app.tui.commands import Commands  # and with it every dialog: the first frame does not wait for them

        return Commands(self, self.work)

    def on_mount(self) -> None:
        """The work tells its results to this screen."""
        self.work.tell_to(self)

    # --- what the desk tells ----------------------------------------------------------------------

    @on(Happened)
    async def _happened(self, happened: Happened) -> None:
        chat = self.work.chat.id if self.work.chat is not None else None
        match happened.event:
            case events.Notice(text, severity):
                tell(self, text, severity)
            case events.ModelState() as state:
                self.query_one(StatusBar).show(state)
                self.query_one(Failures).show(state)
                if self._unheard:
                    self._draw_unheard()
            case events.JobChanged(job):
                self._show_job(job)
            case events.SummingUp(title):
                self.query_one(Activity).aside("" if title is None else f"summing up {one_line(title or 'a chat', 40)}")
            case events.ChatsChanged():
                start(self, self.work.refresh_title(), "title", exclusive=True)
            case event if event.chat == chat:
                await self._chat_event(event)
            case _:
                pass

    async def _chat_event(self, event: events.Event) -> None:
        activity, transcript = self.query_one(Activity), self.transcript
        if not isinstance(event, events.QueueChanged):
            self._unheard = False
        match event:
            case events.MessageAdded(message=message):
                await self._added(message)
            case events.QueueChanged(texts=texts):
                self.queue = texts
                self.draw_queue()
            case events.RecallShown(message=message_id, scope=scope, reason=reason, passages=passages):
                self.reasons[message_id] = f"{scope}: {reason}" if reason else scope
                self.query_one(SourcesPanel).show(self.reasons[message_id], passages)
                found = f"{plural(len(passages), 'passage')} recalled, " if passages else ""
                activity.answering(f"{found}reading the question")
            case events.PromptProgress(done=done, total=total):
                activity.answering(f"reading {done:,} of {total:,} tokens {GLYPHS.dot} Esc stops")
            case events.AnswerDelta(message=message_id):
                activity.answering(f"writing {GLYPHS.dot} Esc stops")
                transcript.grow(message_id, self.work.live.text(message_id) or "")
            case events.AnswerDone(message=message):
                activity.answering("")
                if transcript.find(message.id) is None:
                    await transcript.add(message)
                else:
                    await transcript.finish(message)
            case events.TurnsOver():
                activity.answering("")
            case events.WindowChanged(window=window):
                self.window_moved(window)
            case _:
                pass

    async def _added(self, message: Message) -> None:
        if self.transcript.find(message.id) is not None:
            return
        await self.transcript.add(message)
        if message.role is Role.USER:
            self._unheard = True
            self._draw_unheard()
            await self.transcript.latest()
        elif (text := self.work.live.text(message.id)) is not None:
            self.transcript.grow(message.id, text)

    def _draw_unheard(self) -> None:
        """What a question waits for before anything is heard of its answer."""
        model = next((s for s in self.work.desk.models if s.part is events.Part.MODEL), None)
        waits = model is not None and model.phase in (events.ModelPhase.FETCHING, events.ModelPhase.LOADING)
        words = "waiting for the model" if waits else "looking for what the question needs"
        self.query_one(Activity).answering(f"{words} {GLYPHS.dot} Esc stops")

    def _show_job(self, job: events.IngestJob) -> None:
        pending = False
        for chip in self.chips.query(Chip):
            if (known := job_of(chip.attachment, (job,), job.chat)) is not None:
                chip.show(known)
                pending = True
        if not pending or job.phase in (events.JobPhase.DONE, events.JobPhase.FAILED):
            self.query_one(Activity).job(job)
        if job.needs_password and job.phase is events.JobPhase.FAILED and self._is_here(job):
            start(self, self._unlock(job), "unlock")

    def _is_here(self, job: events.IngestJob) -> bool:
        return self.work.chat is None or job.chat in (None, self.work.chat.id)

    async def _unlock(self, job: events.IngestJob) -> None:
        password = await self.app.push_screen_wait(PasswordScreen(job.name, job.detail))
        if password is not None:
            await self.work.desk.unlock(job.id, password)

    # --- what the work found ----------------------------------------------------------------------

    @on(ChatWork.Opened)
    async def _opened(self, opened: ChatWork.Opened) -> None:
        view = opened.view
        self.work.chat, self.window, self.queue = view.chat, view.window, view.queue
        self.reasons.clear()
        self._unheard = False
        messages = [self._joined(message) for message in view.messages]
        gone = evicted(view.window, [m.id for m in messages])
        await self.transcript.show(messages, view.earlier, gone)
        self.draw_window()
        self.draw_queue()
        self.draw_title(view.chat.title)
        last = next((m for m in reversed(messages) if m.passages), None)
        if last is not None:
            self.query_one(SourcesPanel).show("Behind the newest answer that needed any.", last.passages)
        else:
            self.query_one(SourcesPanel).show("Passages recalled for a question appear here.", ())
        running = self.work.live.running(view.chat.id) is not None
        self.query_one(Activity).answering(f"writing {GLYPHS.dot} Esc stops" if running else "")
        if opened.reveal is None:
            self.prompt.focus()
        elif await self.transcript.reveal(opened.reveal):
            self.transcript.focus(scroll_visible=False)
        else:
            tell(self, "That message is not on this chat's path any more.", Severity.WARNING)

    def _joined(self, message: Message) -> Message:
        text = self.work.live.text(message.id)
        return message if text is None else self.work.with_text(message, text)

    @on(ChatWork.Titled)
    def _titled(self, titled: ChatWork.Titled) -> None:
        self.draw_title(titled.title)

    @on(ChatWork.Earlier)
    async def _earlier(self, earlier: ChatWork.Earlier) -> None:
        if self.work.chat is not None and self.work.chat.id == earlier.chat:
            await self.transcript.prepend(earlier.messages)
            self.draw_window()

    @on(ChatWork.Changed)
    def _changed(self, changed: ChatWork.Changed) -> None:
        self.transcript.update_message(changed.message)

    @on(ChatWork.Unsent)
    def _show_unsent(self, unsent: ChatWork.Unsent) -> None:
        self.unsent = unsent.texts
        self.draw_queue()

    @on(ChatWork.GivenBack)
    async def _given_back(self, back: ChatWork.GivenBack) -> None:
        self.prompt.give_back(back.text)
        for attachment in back.attachments:
            await self._add_chip(attachment)
        if back.quote is not None:
            self.chips.set_quote(back.quote)

    @on(ChatWork.Attached)
    async def _attached(self, attached: ChatWork.Attached) -> None:
        await self._add_chip(attached.attachment)
        self.prompt.focus()

    @on(ChatWork.PasteRead)
    async def _paste_read(self, read: ChatWork.PasteRead) -> None:
        await self._take_dropped(read.dropped)
        whole = "".join(read.pastes)
        if read.dropped.attachments:
            self.prompt.land("")
        else:
            self.prompt.land(read.dropped.text or whole if len(read.pastes) == 1 else whole)

    @on(ChatWork.PathRead)
    async def _path_read(self, read: ChatWork.PathRead) -> None:
        if read.dropped.attachments:
            await self._take_dropped(read.dropped)
        else:
            await self._send(read.text)

    @on(ChatWork.Quoted)
    def _quoted(self, quoted: ChatWork.Quoted) -> None:
        self.quote(quoted.message)

    @on(ChatWork.SourcesRead)
    def _sources_read(self, read: ChatWork.SourcesRead) -> None:
        message = read.message
        reason = self.reasons.get(message.id) or self.reasons.get(message.parent or message.id)
        reason = reason or f"Behind: {one_line(message.text, 60)}"
        self.show_sources(reason if read.passages else "No passages were recalled for this one.", read.passages)

    # --- what the person does ---------------------------------------------------------------------

    async def action_act(self, action: str) -> None:
        """Run one action of the table."""
        await self.commands.run(ActionId(action))

    @on(Prompt.Submitted)
    async def _submitted(self, submitted: Prompt.Submitted) -> None:
        text = submitted.text
        try:
            command = parse_command(text)
        except CommandError as error:
            tell(self, str(error), Severity.WARNING)
            self.prompt.give_back(text)
            return
        if command is not None:
            await self.commands.run(command.action.id, command.argument)
        elif _PATH.match(text):
            # Terminals without bracketed paste type a dropped path; a person may type one, too.
            start(self, self.work.read_path(text), "drop")
        else:
            await self._send(text)

    async def _send(self, text: str) -> None:
        if not text.strip():
            if self.chips.attachments:
                tell(self, "Write a question to go with the file.")
            return
        attachments, quote = await self.chips.clear()
        if quote is not None:
            self.transcript.know(quote)
        self.transcript.deselect()
        start(self, self.work.send(text, attachments, quote), "send")

    @on(Prompt.Changed)
    def _typing(self) -> None:
        self.query_one(CommandHints).show(self.prompt.text)

    @on(Prompt.Pasted)
    def _pasted(self, pasted: Prompt.Pasted) -> None:
        start(self, self.work.read_paste(pasted.pastes), "drop")

    def take_paste(self, text: str) -> None:
        """A drop that came while nothing had the focus, as when the terminal is in the background."""
        self.prompt.focus()
        self.prompt.paste(text)

    @on(Prompt.DetachWanted)
    async def _detach_wanted(self) -> None:
        await self.commands.run(ActionId.DETACH)

    @on(Prompt.UnqueueWanted)
    async def _unqueue_wanted(self) -> None:
        await self.commands.run(ActionId.UNQUEUE)

    @on(Prompt.PageWanted)
    def _page(self, wanted: Prompt.PageWanted) -> None:
        self.transcript.page(wanted.direction)

    @on(Chip.Removed)
    async def _chip_removed(self, removed: Chip.Removed) -> None:
        await self.chips.detach(removed.attachment)

    def on_descendant_focus(self) -> None:
        """The bar of keys follows the focus."""
        on_message = self.focused is self.transcript
        self.query_one(KeyBar).context = Context.MESSAGE if on_message else Context.CHAT

    @on(Transcript.EarlierWanted)
    def _earlier_wanted(self, wanted: Transcript.EarlierWanted) -> None:
        start(self, self.work.earlier(wanted.before), "earlier", exclusive=True)

    @on(Transcript.FollowChanged)
    def _follow_changed(self, changed: Transcript.FollowChanged) -> None:
        if changed.following:
            self.query_one("#new-below").display = False

    @on(Transcript.NewBelow)
    def _new_below(self) -> None:
        if not self.transcript.following:
            self.query_one("#new-below").display = True

    @on(Transcript.Selected)
    def _selected(self, selected: Transcript.Selected) -> None:
        marked = selected.message.id if selected.message is not None else None
        for meter in self.query(Meter):
            meter.marked = marked

    @on(PassageList.Opened)
    def _passage_opened(self, opened: PassageList.Opened) -> None:
        self.app.push_screen(passage_screen(opened.passage))

    def on_markdown_link_clicked(self, clicked: Markdown.LinkClicked) -> None:
        """Ask, then open."""
        # A model writes these links; what is opened is shown first, and nothing is without a yes.
        start(self, self._open_link(clicked.href), "link", exclusive=True)

    async def _open_link(self, href: str) -> None:
        if await self.app.push_screen_wait(ConfirmScreen("Open this link in the browser?", href, "open it")):
            self.app.open_url(href)

    # --- parts of actions -------------------------------------------------------------------------

    async def _add_chip(self, attachment: Attachment) -> None:
        job = self.work.job_of(attachment)
        await self.chips.attach(attachment, job)
        if job is not None:
            self.query_one(Activity).leave(job)

    async def _take_dropped(self, dropped: Dropped) -> None:
        for attachment in dropped.attachments:
            await self._add_chip(attachment)
        if dropped.explanation:
            tell(self, dropped.explanation)
