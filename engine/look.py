"""What can be said of a session without changing it: what its model sees, and what it will see."""

from __future__ import annotations

from engine.chat import Chat
from engine.events import VisibleMessage, WindowState
from engine.policy import Policy
from engine.session import Session
from engine.truncate import answer_room, kept_from
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
        until_eviction=until_eviction(s),
        page_size=shape.page_size,
        quota_bytes=quota_bytes,
        tokens_per_second=tokens_per_second,
        messages=(sinks, *pinned, *(m for m in messages if m.visible)),
    )


def until_eviction(session: Session) -> int:
    """Tokens that can still be computed before a page has to be recycled, or dropped."""
    room = session.shape.full_at(session.floor) - session.position
    return room if room >= 0 else session.shape.until_eviction(Position(session.position - 1))


def whole_messages(chat: Chat, ahead: int) -> tuple[MessageKey, ...]:
    """Messages that will be in the window in full once a next message of `ahead` tokens has been read: those that are
    pinned, and those of the ring, what waits to be computed included; if the policy is to truncate, with room for as
    long an answer as is ever kept free."""
    s = chat.session
    firsts, last = [*(span.first for span in s.spans), s.end], Position(s.end + max(1, ahead) - 1)
    if s.policy is Policy.TRUNCATE:
        end = last + 1 + answer_room(s.shape, s.shape.ring_tokens)
        start = kept_from(s.shape, s.floor, end, firsts, {*chat.user_starts(), s.end}) or s.end
    else:
        start = max(s.start, window_start(s.shape, last, firsts))
    ring = (span.key for span in s.spans if span.first >= start)
    return (*(span.key for span in s.pinned), *ring)


def visible_positions(session: Session) -> list[Position]:
    """The positions that the last computed token of a session saw."""
    s = session
    return [Position(t) for t in (*range(min(s.position, s.shape.sinks)), *range(s.start, s.position))]
