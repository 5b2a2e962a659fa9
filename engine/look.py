"""What can be said of a session without changing it: what its model sees, and what it will see."""

from __future__ import annotations

from engine.chat import Chat
from engine.events import VisibleMessage, WindowState
from engine.policy import Policy
from engine.session import MessageSpan, Session
from engine.truncate import answer_room, kept_from
from engine.types import MessageKey, Position
from engine.window import full_pages, window_start


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
    messages = [
        VisibleMessage(span.key, _visible_of(s, span), min(span.end, s.position) - span.first) for span in s.spans
    ]
    return WindowState(
        quota_tokens=shape.quota_pages * shape.page_size,
        sink_tokens=shape.sinks,
        pinned_tokens=shape.sinks - system,
        ring_tokens=shape.ring_tokens,
        visible_tokens=s.visible_tokens,
        position=s.position,
        evicted=s.position - s.visible_tokens,
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
    pinned, and those of the ring, what waits to be computed included. If the policy is to truncate, with room for as
    long an answer as is ever kept free; if pages are scored, those that are certain to stay."""
    s = chat.session
    firsts, last = [*(span.first for span in s.spans), s.end], Position(s.end + max(1, ahead) - 1)
    if s.policy is Policy.TRUNCATE:
        end = last + 1 + answer_room(s.shape, s.shape.ring_tokens)
        start = kept_from(s.shape, s.floor, end, firsts, {*chat.user_starts(), s.end}) or s.end
    else:
        start = max(s.start, window_start(s.shape, last, firsts))
    ring = [span for span in s.spans if (span.first >= start if s.ring is None else _is_kept(s, span, last))]
    return tuple(span.key for span in (*s.pinned, *ring))


def _is_kept(session: Session, span: MessageSpan, last: Position) -> bool:
    """Whether scored pages will show a message in full at the token at `last`, whatever attention does until then."""
    assert session.ring is not None
    shape, newest = session.shape, full_pages(session.shape, last)
    if newest < shape.quota_pages:
        return True
    spared = range(newest - shape.ring_pages // 2, newest + 1)
    return set(session.pages_of(span)) <= (session.ring.live.keys() if newest in session.ring.live else set(spared))


def visible_positions(session: Session) -> list[Position]:
    """The positions that the last computed token of a session saw."""
    s = session
    ring = (t for first, end in s.visible_ranges() for t in range(first, end))
    return [Position(t) for t in (*range(min(s.position, s.shape.sinks)), *ring)]


def _visible_of(session: Session, span: MessageSpan) -> int:
    """Visible tokens of a message of the ring."""
    return sum(max(0, min(end, span.end) - max(first, span.first)) for first, end in session.visible_ranges())
