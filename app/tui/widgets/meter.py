"""The window meter: what the model can see now, drawn from the engine's own counts and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget

from app.host.wire import WindowView
from app.ids import MessageId
from app.tui.glyphs import GLYPHS
from app.tui.text import megabytes, plural


class Tint(StrEnum):
    """What a stretch of the bar stands for."""

    SINKS = "sinks"
    EVEN = "even"
    ODD = "odd"
    MARKED = "marked"
    FREE = "free"


_STYLES = {
    Tint.SINKS: "$accent",
    Tint.EVEN: "$primary",
    Tint.ODD: "$primary-lighten-3",
    Tint.MARKED: "$warning",
    Tint.FREE: "$foreground 25%",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of cells of one tint."""

    tint: Tint
    cells: int


def stretches(view: WindowView, width: int, marked: MessageId | None = None) -> tuple[Stretch, ...]:
    """The quota as `width` cells: sinks, each visible message by turns in two tints, and what is free.

    Edges are rounded cumulatively, so the cells always add up to `width` and no stretch drifts.
    """
    parts: list[tuple[Tint, int]] = [(Tint.SINKS, view.sink_tokens)]
    ring = [s for s in view.segments if s.message is not None and not s.pinned and s.visible_tokens > 0]
    for index, segment in enumerate(ring):
        plain = Tint.EVEN if index % 2 == 0 else Tint.ODD
        parts.append((Tint.MARKED if segment.message == marked else plain, segment.visible_tokens))
    counted = sum(tokens for _, tokens in parts)
    if view.visible_tokens > counted:
        parts.append((Tint.EVEN if len(ring) % 2 == 0 else Tint.ODD, view.visible_tokens - counted))
    quota = max(1, view.quota_tokens)
    found: list[Stretch] = []
    tokens, edge = 0, 0
    for tint, count in parts:
        tokens += count
        end = min(width, round(tokens / quota * width))
        if end > edge:
            found.append(Stretch(tint, end - edge))
            edge = end
    if edge < width:
        found.append(Stretch(Tint.FREE, width - edge))
    return tuple(found)


def bar(view: WindowView, width: int, marked: MessageId | None = None) -> Content:
    """The bar in signs and tints; without colour the signs alone tell sinks, visible and free apart."""
    signs = {Tint.SINKS: GLYPHS.sinks, Tint.FREE: GLYPHS.free}
    return Content.assemble(
        *((signs.get(s.tint, GLYPHS.visible) * s.cells, _STYLES[s.tint]) for s in stretches(view, width, marked))
    )


def facts(view: WindowView) -> list[str]:
    """The engine's numbers as short phrases, the most wanted first."""
    words = [
        f"{view.visible_tokens:,} of {view.quota_tokens:,} tokens visible",
        f"{view.evicted_tokens:,} evicted",
    ]
    if view.tokens_per_second > 0:
        words.append(f"{view.tokens_per_second:.1f} tok/s")
    words.append(f"{megabytes(view.quota_bytes)} {view.format}")
    words.append(f"next eviction in {plural(view.next_eviction_tokens, 'token')}")
    return words


def long_facts(view: WindowView) -> str:
    """Everything the engine says about the window, a line each."""
    free = max(0, view.quota_tokens - view.visible_tokens)
    return "\n".join(
        (
            f"Quota            {plural(view.quota_tokens, 'token')}, {megabytes(view.quota_bytes)}, {view.format}",
            f"Visible          {plural(view.visible_tokens, 'token')}",
            f"  sinks          {plural(view.sink_tokens, 'token')} (system prompt and pinned messages, never evicted)",
            f"    pinned       {plural(view.pinned_tokens, 'token')}",
            f"  ring           {view.visible_tokens - view.sink_tokens:,} of {view.ring_tokens:,} tokens",
            f"Free             {plural(free, 'token')}",
            f"Read so far      {plural(view.position, 'token')}",
            f"Evicted          {plural(view.evicted_tokens, 'token')}, kept as text",
            f"Page             {plural(view.page_size, 'token')}; the next is recycled in "
            f"{plural(view.next_eviction_tokens, 'token')}{_in_time(view)}",
            f"Past windows     {megabytes(view.host_bytes)} of {megabytes(view.host_capacity_bytes)}, off the device",
            f"Found again      {plural(view.found_tokens, 'token')} of all chats, not computed anew",
            f"Speed            {view.tokens_per_second:.1f} tokens/s",
        )
    )


def _in_time(view: WindowView) -> str:
    """How long that is at the speed of the last answer."""
    if not view.tokens_per_second:
        return ""
    return f", {view.next_eviction_tokens / view.tokens_per_second:.1f} s of writing"


class Meter(Widget):
    """The window as a bar with its numbers; one line when `-line` is set, five otherwise."""

    DEFAULT_CSS = """
    Meter { height: auto; color: $text-muted; }
    """
    view: reactive[WindowView | None] = reactive(None, layout=True)
    marked: reactive[MessageId | None] = reactive(None)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One line, or as many as `render` draws."""
        return self._content(max(1, width)).plain.count("\n") + 1

    def render(self) -> Content:
        """The bar and its numbers."""
        return self._content(max(1, self.content_size.width))

    def _content(self, width: int) -> Content:
        view = self.view
        if view is None:
            return Content("The window is empty." if width >= 20 else "empty")
        if self.has_class("-line"):
            return self._line(view, width)
        first, *rest = facts(view)
        lines = [bar(view, width, self.marked), self._legend(), Content(first)]
        line = ""
        for fact in rest:
            longer = f"{line} {GLYPHS.dot} {fact}" if line else fact
            if line and len(longer) > width:
                lines.append(Content(line))
                longer = fact
            line = longer
        lines.append(Content(line))
        return Content("\n").join(lines)

    @staticmethod
    def _legend() -> Content:
        return Content.assemble(
            (f"{GLYPHS.sinks} ", _STYLES[Tint.SINKS]),
            "sinks  ",
            (f"{GLYPHS.visible} ", _STYLES[Tint.EVEN]),
            "visible  ",
            (f"{GLYPHS.free} ", _STYLES[Tint.FREE]),
            "free",
        )

    def _line(self, view: WindowView, width: int) -> Content:
        words = [f"{view.visible_tokens:,}/{view.quota_tokens:,} visible", *facts(view)[1:]]
        cells = max(8, min(30, width // 3))
        text = ""
        for word in words:
            longer = f"{text} {GLYPHS.dot} {word}" if text else word
            if len(longer) + cells + 1 > width:
                break
            text = longer
        return Content.assemble(bar(view, cells, self.marked), f" {text}")
