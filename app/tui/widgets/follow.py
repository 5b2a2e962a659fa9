"""A scroll view that follows its end only while it is there, and can keep a widget in place while others change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from textual import events
from textual.containers import VerticalScroll
from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class Hold:
    """A widget that stays where it is: `offset` rows below the top of the view, or just inside it (None)."""

    widget: Widget
    offset: float | None


class FollowView(VerticalScroll, inherit_bindings=False):
    """Adds to Textual's anchor what a chat needs: exact release and return, and a held place."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(id=id)
        self._hold: Hold | None = None
        self._placing = False
        self._changing = False

    @property
    def following(self) -> bool:
        """Whether new text keeps the view at the bottom."""
        return not self.is_anchored or not self._anchor_released

    # Hooks for the subclass.

    def follow_settled(self) -> None:
        """The view may have come to the bottom, or left it."""

    def top_reached(self) -> None:
        """The view came to the top, or is not full."""

    def bottom_reached(self) -> None:
        """The view came to the bottom."""

    # Places.

    def follow(self) -> None:
        """Go to the end and follow new text."""
        self._hold = None
        self._anchor_released = False
        if self.is_anchored:
            self.scroll_end(animate=False, immediate=True)
        self.follow_settled()

    @asynccontextmanager
    async def in_place(self, widget: Widget) -> AsyncIterator[None]:
        """Keep a widget where it is while others come and go around it, though the person scrolls meanwhile."""
        self._changing = True
        self._hold = Hold(widget, widget.virtual_region.y - self.scroll_y)
        if self.is_anchored:
            self._anchor_released = True
        try:
            yield
        finally:
            self.call_after_refresh(self._changed)

    def _changed(self) -> None:
        self._fit()
        self._changing = False

    def bring(self, widget: Widget) -> None:
        """Bring a widget into view as soon as it is laid out; until the next scroll."""
        self._hold = Hold(widget, None)
        self.call_after_refresh(self._fit)

    def page(self, direction: int) -> None:
        """Scroll up (-1) or down (1) by a screen."""
        step = max(1, self.scrollable_content_region.height - 2) * direction
        self.scroll_to(y=self.scroll_y + step, animate=False, immediate=True)
        if direction > 0:
            self._settle()
        elif self.scroll_y <= 1:
            self.top_reached()

    # How it works.

    def watch_virtual_size(self) -> None:
        """The content grew or shrank."""
        self.call_later(self._fit)

    def _fit(self) -> None:
        # Textual scrolls an anchored view that is not full to a negative place: anchor only a full one.
        if self.max_scroll_y <= 0:
            if self.is_anchored:
                self.anchor(False)
                self._anchor_released = False
                self.set_scroll(None, 0)
            self.follow_settled()
            self.top_reached()
            return
        if not self.is_anchored:
            self.anchor()
        if self._hold is not None:
            self._place(self._hold)

    def _place(self, hold: Hold) -> None:
        if not hold.widget.is_mounted:
            self._hold = None
            return
        region, height = hold.widget.virtual_region, self.scrollable_content_region.height
        top = region.y - self.scroll_y
        y = self.scroll_y
        if hold.offset is not None:
            y = region.y - hold.offset
        elif top < 0 or region.height > height:
            y = region.y
        elif top + region.height > height:
            y = region.bottom - height
        self._placing = True
        self.scroll_to(y=y, animate=False, immediate=True)
        self._placing = False
        self._settle()

    def _settle(self) -> None:
        self._check_anchor()
        if self.is_anchored and not self._anchor_released:
            self._hold = None
        self.follow_settled()

    def release_anchor(self) -> None:
        """Textual calls this on every scroll; what does not follow has nothing to release."""
        if not self._placing and not self._changing:
            self._hold = None
        if self.is_anchored and self.max_scroll_y > 0:
            super().release_anchor()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Notice the ends of the view."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) == round(new_value) or not self.is_mounted:
            return
        self.follow_settled()
        if new_value < old_value and new_value <= 1:
            self.top_reached()
        elif new_value >= self.max_scroll_y:
            self.bottom_reached()

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        super()._on_mouse_scroll_up(event)
        if self.scroll_y <= 1:
            self.top_reached()

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        # Scrolling down at the very bottom releases the anchor without moving, so Textual never restores it.
        super()._on_mouse_scroll_down(event)
        self.call_after_refresh(self._settle)
