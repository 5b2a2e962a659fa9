"""The chat screen's parts and how they are drawn; what they do is in chat.py."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from app.host.wire import Passage, Role, WindowView
from app.ids import MessageId
from app.store.types import Message, MessageStatus
from app.tui.chat_work import ChatWork
from app.tui.glyphs import ASCII, GLYPHS
from app.tui.screens.sources import SourcesScreen
from app.tui.text import evicted
from app.tui.widgets.chips import ChipBar, QueueView
from app.tui.widgets.hints import CommandHints
from app.tui.widgets.keybar import KeyBar
from app.tui.widgets.meter import Meter
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.sources import PassageList, SourcesPanel
from app.tui.widgets.status import Activity, Failures, StatusBar
from app.tui.widgets.transcript import Transcript
from app.tui.work import tell

WINDOW_INTERVAL = 0.25
"""Seconds between two drawings of the meter while an answer runs."""


class ChatLayout(Screen[None]):
    """Transcript, prompt and what stands around it; a side panel where there is room."""

    CSS_PATH = "chat.tcss"
    AUTO_FOCUS = "#prompt"
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [  # noqa: RUF012  (as Textual declares it)
        (0, "-narrow"),
        (100, "-wide"),
    ]

    def __init__(self, work: ChatWork) -> None:
        super().__init__()
        self.work = work
        self.window: WindowView | None = None
        """What the model sees now."""
        self.queue: tuple[str, ...] = ()
        """Texts that wait in the desk."""
        self.unsent: tuple[str, ...] = ()
        """Texts that wait for the desk itself."""
        self.reasons: dict[MessageId, str] = {}
        """What recall decided for each question."""
        self._window_timer: Timer | None = None
        self.set_class(GLYPHS is ASCII, "-ascii")

    def compose(self) -> ComposeResult:
        """Only light widgets: the first frame comes before anything is loaded."""
        yield StatusBar(id="status")
        with Horizontal(id="body"):
            with Vertical(id="main"):
                yield Transcript(id="transcript")
                below = Static(f"{GLYPHS.down} new text below (End)", id="new-below")
                below.display = False
                yield below
                yield Failures(id="failures")
                yield Activity(id="activity")
                yield QueueView(id="queue")
                yield ChipBar(id="chips")
                yield CommandHints(id="hints")
                yield Prompt(id="prompt")
                yield Meter(id="meter-line", classes="-line")
            with Vertical(id="side"):
                yield Static("Window", id="side-title")
                yield Meter(id="meter")
                yield SourcesPanel(id="sources")
        yield KeyBar(id="keys")

    # --- parts ------------------------------------------------------------------------------------

    @property
    def transcript(self) -> Transcript:
        """The messages."""
        return self.query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        """Where the person writes."""
        return self.query_one(Prompt)

    @property
    def chips(self) -> ChipBar:
        """What goes with the next message."""
        return self.query_one(ChipBar)

    @property
    def streaming(self) -> bool:
        """Whether an answer is being written."""
        return self.work.chat is not None and self.work.live.running(self.work.chat.id) is not None

    @property
    def answering(self) -> bool:
        """Whether an answer is being written, or a question waits for its own."""
        messages = self.transcript.messages
        return self.streaming or (bool(messages) and messages[-1].role is Role.USER)

    def target(self) -> Message | None:
        """The selected message, else the newest answer, else the newest message."""
        messages = self.transcript.messages
        answers = (m for m in reversed(messages) if m.role is Role.ASSISTANT)
        return self.transcript.selected or next(answers, messages[-1] if messages else None)

    # --- drawing ---

    def window_moved(self, window: WindowView) -> None:
        """Draw the newest window soon; many come while an answer runs."""
        self.window = window
        if self._window_timer is None:
            self._window_timer = self.set_timer(WINDOW_INTERVAL, self.draw_window)

    def draw_window(self) -> None:
        """Draw the meter and grey what the model no longer sees."""
        if self._window_timer is not None:
            self._window_timer.stop()
            self._window_timer = None
        for meter in self.query(Meter):
            meter.view = self.window
        order = [m.id for m in self.transcript.messages]
        self.transcript.mark_evicted(evicted(self.window, order))

    def draw_queue(self) -> None:
        """Draw what waits."""
        texts = (*self.queue, *self.unsent)
        self.prompt.queue_waits = bool(self.queue)
        self.query_one(QueueView).show(texts)

    def draw_title(self, title: str) -> None:
        """Draw the chat's title."""
        self.query_one(StatusBar).title = title or "new chat"

    def quote(self, message: Message) -> None:
        """Quote a message in the next one."""
        if message.status is MessageStatus.STREAMING:
            tell(self, "Wait for the end of the answer to quote it.")
            return
        self.chips.set_quote(message)
        self.to_prompt()

    def to_prompt(self) -> None:
        """Select nothing and go back to writing."""
        self.transcript.deselect()
        self.prompt.focus()

    def show_sources(self, reason: str, passages: tuple[Passage, ...]) -> None:
        """In the side panel where there is one, else in a dialog."""
        if self.query_one("#side").display:
            self.query_one(SourcesPanel).show(reason, passages)
            if passages:
                self.query_one(PassageList).enter()
        else:
            self.app.push_screen(SourcesScreen(reason, passages))
