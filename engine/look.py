"""What can be said of a session without changing it: what its model sees, and what it will see."""

from __future__ import annotations

from engine.events import VisibleMessage, WindowState
from engine.session import Session
from engine.types import MessageKey, Position
from engine.window import window_start


def window_state(session: Session, quota_bytes: int, tokens_per_second: float) -> WindowState:
    """What the model sees in a session right now."""
    s, shape = session, session.shape
    system = s.pinned[0].first if s.pinned else shape.sinks
    sinks = VisibleMessage(None, min(s.position, system), system)
    pinned = [
        VisibleMessage(span.key, max(0, min(s.position, span.end) - span.first), span.end - span.first, pinned=True)
        for span in s.pinned
    ]
    # Tokens that wait (the end-of-turn mark of the last answer) are not computed: they count for nothing yet.
    ends = [min(span.end, s.position) for span in s.spans]
    messages = [
        VisibleMessage(span.key, max(0, end - max(span.first, s.start)), end - span.first)
        for span, end in zip(s.spans, ends, strict=True)
    ]
    return WindowState(
        quota_tokens=shape.quota_pages * shape.page_size,
        sink_tokens=shape.sinks,
        pinned_tokens=shape.sinks - system,
        ring_tokens=shape.ring_tokens,
        visible_tokens=s.visible_tokens,
        position=s.position,
        evicted=s.start - shape.sinks,
        until_eviction=shape.until_eviction(Position(s.position - 1)),
        page_size=shape.page_size,
        quota_bytes=quota_bytes,
        tokens_per_second=tokens_per_second,
        messages=(sinks, *pinned, *(m for m in messages if m.visible)),
    )


def whole_messages(session: Session, ahead: int) -> tuple[MessageKey, ...]:
    """Messages that will be in the window in full once a next message of `ahead` tokens has been read: those that are
    pinned, and those of the ring, what waits to be computed included."""
    s = session
    last = Position(s.end + max(1, ahead) - 1)
    start = max(s.start, window_start(s.shape, last, [*(span.first for span in s.spans), s.end]))
    ring = (span.key for span in s.spans if span.first >= start)
    return (*(span.key for span in s.pinned), *ring)


def visible_positions(session: Session) -> list[Position]:
    """The positions that the last computed token of a session saw."""
    s = session
    return [Position(t) for t in (*range(min(s.position, s.shape.sinks)), *range(s.start, s.position))]
