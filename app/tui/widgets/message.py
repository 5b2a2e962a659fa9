"""One message of the transcript."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as Event
from textual.widgets import Static

from app.host.wire import Role
from app.ids import MessageId
from app.store.types import Message, MessageStatus
from app.tui.glyphs import GLYPHS
from app.tui.text import cited, clock, one_line, plural
from app.tui.widgets.stream import AnswerStream

if TYPE_CHECKING:
    from textual.widgets import Markdown

NAMES = {Role.USER: "you", Role.ASSISTANT: "aios", Role.SYSTEM: "system"}

_ENDINGS = {
    MessageStatus.STOPPED: "stopped",
    MessageStatus.INTERRUPTED: "interrupted: the program ended while this was written",
    MessageStatus.FAILED: "failed",
    MessageStatus.LOOPED: "ended: the answer was repeating itself",
    MessageStatus.BLOCKED: "ended: what it must match and what it must not say left no way on",
}


def header(message: Message, evicted: bool) -> Content:
    """Who, when, starred, pinned, and whether only the text is left. The last two are words, not only a colour."""
    tint = "$text-accent" if message.role is Role.ASSISTANT else "$text-primary"
    parts: list[str | tuple[str, str]] = [
        (NAMES[message.role], f"bold {tint}"),
        (f"  {clock(message.created)}", "$foreground 60%"),
    ]
    if message.starred:
        parts.append((f"  {GLYPHS.star}", "$text-warning"))
    if message.pinned:
        parts.append((f"  {GLYPHS.dot} pinned", "$text-accent"))
    if evicted:
        parts.append((f"  {GLYPHS.dot} out of the window", "italic $foreground 60%"))
    return Content.assemble(*parts)


def footer(message: Message) -> Content:
    """The citations an answer rests on, and how it ended if not by itself."""
    lines: list[Content] = [
        Content.assemble((f"[{passage.label}] ", "bold $text-accent"), (passage.place(), "$foreground 60%"))
        for passage in cited(message)
    ]
    ending: list[str] = []
    if message.status in _ENDINGS:
        ending.append(_ENDINGS[message.status])
    if (figures := message.figures) is not None and figures.new_tokens:
        ending.append(plural(figures.new_tokens, "token"))
        if figures.decode_seconds > 0:
            ending.append(f"{figures.new_tokens / figures.decode_seconds:.1f} tok/s")
    if ending:
        tint = "$text-error" if message.status is MessageStatus.FAILED else "$foreground 45%"
        lines.append(Content.styled(f" {GLYPHS.dot} ".join(ending), tint))
    return Content("\n").join(lines)


class MessageView(Vertical):
    """A message: header, quoted line, attached files, body, footer.

    What a person wrote is shown exactly as typed; an answer is Markdown.
    """

    DEFAULT_CSS = """
    MessageView {
        height: auto;
        padding: 0 2 0 1;
        margin: 0 0 1 0;
        border-left: outer transparent;
        &.-user { background: $surface; border-left: outer $primary; }
        &.-assistant { border-left: outer $accent 40%; }
        &.-evicted { border-left: outer $foreground 15%; background: transparent; }
        &.-evicted .message--body, &.-evicted .message--foot { text-opacity: 55%; }
        &.-evicted .message--extra { text-opacity: 55%; }
        &.-selected { background: $boost; border-left: outer $warning; }
        .message--head, .message--extra, .message--foot { height: auto; }
        .message--extra { color: $text-muted; }
        .message--foot { margin: 1 0 0 0; }
        .message--body { height: auto; padding: 0; margin: 0; background: transparent; }
        Markdown > MarkdownBlock:last-child { margin-bottom: 0; }
        &.-evicted Markdown MarkdownBlock { text-opacity: 55%; }
    }
    """

    @dataclass
    class Clicked(Event):
        """The person clicked on a message."""

        message: MessageId

    def __init__(self, message: Message, *, quoted: str | None, evicted: bool) -> None:
        super().__init__(classes=f"-{message.role.value}")
        self.message = message
        self._quoted = quoted
        self._evicted = evicted
        self.set_class(evicted, "-evicted")
        self._head = Static(header(message, evicted), classes="message--head")
        self._foot = Static(classes="message--foot")
        self._stream: AnswerStream | None = None
        self._draw_edges()

    @cached_property
    def _markdown(self) -> Markdown:
        """An answer's body."""
        from textual.widgets import Markdown  # with its parser and highlighter: the first frame does without

        return Markdown(classes="message--body", open_links=False)

    def compose(self) -> ComposeResult:
        """The parts this message has."""
        message = self.message
        yield self._head
        if message.quote is not None:
            quoted = self._quoted if self._quoted is not None else "an earlier message"
            line = f"{GLYPHS.quote} {one_line(quoted, 200)}"
            yield Static(Content.styled(line, "italic"), classes="message--extra", id="quote")
        if message.attachments:
            names = "   ".join(f"{GLYPHS.file} {a.name}" for a in message.attachments)
            yield Static(Content(names), classes="message--extra", id="files")
        if message.role is Role.ASSISTANT:
            yield self._markdown
        else:
            yield Static(Content(message.text), classes="message--body")
        yield self._foot

    async def on_mount(self) -> None:
        """Write the body before the mount counts as done, so that the first layout has its height."""
        if self.message.role is Role.ASSISTANT and self.message.text:
            await self._markdown.update(self.message.text)
        if self.message.status is MessageStatus.STREAMING:
            self._stream = AnswerStream(self._markdown, self.message.text)

    @property
    def evicted(self) -> bool:
        """Whether the model no longer sees any of it."""
        return self._evicted

    def mark_evicted(self, evicted: bool) -> None:
        """Grey the message, or bring it back."""
        if evicted != self._evicted:
            self._evicted = evicted
            self.set_class(evicted, "-evicted")
            self._draw_edges()

    def replace(self, message: Message) -> None:
        """Show changed facts (star, status, citations) of the same message; the text stays."""
        self.message = message
        self._draw_edges()

    def _draw_edges(self) -> None:
        self._head.update(header(self.message, self._evicted))
        foot = footer(self.message)
        self._foot.update(foot)
        self._foot.display = bool(foot.plain)

    def grow(self, text: str) -> None:
        """The answer's text so far."""
        if self._stream is not None:
            self._stream.offer(text)

    def hold(self, held: bool) -> None:
        """Do not write new text while the person reads further up."""
        if self._stream is not None:
            self._stream.hold(held)

    async def finish(self, message: Message) -> None:
        """The answer is complete or stopped."""
        stream, self._stream = self._stream, None
        if stream is None:
            stream = AnswerStream(self._markdown, self.message.text)
        await stream.finish(message.text)
        self.replace(message)

    def on_click(self, event: events.Click) -> None:
        """A click selects the message."""
        event.stop()
        self.post_message(self.Clicked(self.message.id))
