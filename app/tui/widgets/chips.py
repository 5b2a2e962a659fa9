"""What goes with the next message: files with their progress, a quote; and what waits in the queue."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as Event
from textual.widgets import Static

from app.events import IngestJob, JobPhase
from app.store.types import Attachment, Message
from app.tui.glyphs import GLYPHS
from app.tui.text import job_words, one_line

_TINTS = {JobPhase.DONE: "$text-success", JobPhase.FAILED: "$text-error"}


class Chip(Static):
    """One attached file; a click takes it off."""

    @dataclass
    class Removed(Event):
        """The person clicked on a chip."""

        attachment: Attachment

    def __init__(self, attachment: Attachment, job: IngestJob | None) -> None:
        super().__init__(self.draw(attachment, job))
        self.attachment = attachment

    @staticmethod
    def draw(attachment: Attachment, job: IngestJob | None) -> Content:
        """The file's name and where its reading stands."""
        name = (f"{GLYPHS.file} {attachment.name}", "$text-primary")
        if job is None:
            return Content.assemble(name)
        return Content.assemble(name, "  ", (job_words(job), _TINTS.get(job.phase, "$foreground 60%")))

    def show(self, job: IngestJob | None) -> None:
        """The reading moved on."""
        self.update(self.draw(self.attachment, job))

    def on_click(self, event: events.Click) -> None:
        """Take it off."""
        event.stop()
        self.post_message(self.Removed(self.attachment))


class ChipBar(Vertical):
    """The attachments and the quote of the next message. Hidden when there are none."""

    DEFAULT_CSS = """
    ChipBar {
        height: auto;
        max-height: 6;
        padding: 0 2;
        overflow-y: auto;
        Static { height: auto; }
        #pending-quote { color: $text-muted; text-style: italic; }
    }
    """

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self.attachments: tuple[Attachment, ...] = ()
        self.quote: Message | None = None
        self.display = False

    def compose(self) -> ComposeResult:
        """The quote's line; chips are mounted as they come."""
        quote = Static("", id="pending-quote")
        quote.display = False
        yield quote

    async def attach(self, attachment: Attachment, job: IngestJob | None) -> None:
        """Add a file to the next message."""
        self.attachments = (*self.attachments, attachment)
        await self.mount(Chip(attachment, job))
        self._draw()

    def set_quote(self, message: Message | None) -> None:
        """Quote a message in the next one."""
        self.quote = message
        self._draw()

    async def detach_last(self) -> bool:
        """Take off the last file, else the quote. False when there is neither."""
        if self.attachments:
            await self.detach(self.attachments[-1])
            return True
        had, self.quote = self.quote is not None, None
        self._draw()
        return had

    async def detach(self, attachment: Attachment) -> None:
        """Take one file off."""
        self.attachments = tuple(a for a in self.attachments if a is not attachment)
        for chip in self.query(Chip):
            if chip.attachment is attachment:
                await chip.remove()
        self._draw()

    async def clear(self) -> tuple[tuple[Attachment, ...], Message | None]:
        """Hand everything over to a message."""
        taken = self.attachments, self.quote
        self.attachments, self.quote = (), None
        await self.query(Chip).remove()
        self._draw()
        return taken

    def _draw(self) -> None:
        line = self.query_one("#pending-quote", Static)
        line.display = self.quote is not None
        if self.quote is not None:
            line.update(Content(f"{GLYPHS.quote} {one_line(self.quote.text, 100)}"))
        self.display = bool(self.attachments) or self.quote is not None


class QueueView(Static):
    """The messages that wait for the running answer or the model. Hidden when there are none."""

    DEFAULT_CSS = """
    QueueView { height: auto; padding: 0 2; color: $text-muted; }
    """
    SHOWN = 3

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__("", id=id)
        self.display = False

    def show(self, texts: tuple[str, ...]) -> None:
        """Show the queue, oldest first."""
        self.display = bool(texts)
        lines = [f"queued {GLYPHS.dot} {one_line(text, 100)}" for text in texts[: self.SHOWN]]
        if len(texts) > self.SHOWN:
            lines.append(f"and {len(texts) - self.SHOWN} more")
        if lines:
            lines[-1] += "   (Up takes the newest back)"
        self.update(Content("\n".join(lines)))
