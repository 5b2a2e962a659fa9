"""The text of answers while they stream, apart from any widget: what a reopened chat needs to join in."""

from __future__ import annotations

from app.events import AnswerDelta, AnswerDone, Event, MessageAdded
from app.ids import ChatId, MessageId
from app.store.types import MessageStatus


class LiveAnswers:
    """Follows every event and knows each running answer's whole text, whichever chat is on the screen.

    Widgets are given the text so far, never a piece, so a piece can be neither missed nor shown twice.
    """

    def __init__(self) -> None:
        self._texts: dict[MessageId, str] = {}
        self._running: dict[ChatId, MessageId] = {}

    def follow(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case MessageAdded(chat, message) if message.status is MessageStatus.STREAMING:
                self._texts[message.id] = message.text
                self._running[chat] = message.id
            case AnswerDelta(chat, message_id, text):
                self._texts[message_id] = self._texts.get(message_id, "") + text
                self._running[chat] = message_id
            case AnswerDone(chat, message):
                self._texts.pop(message.id, None)
                self._running.pop(chat, None)
            case _:
                pass

    def text(self, message: MessageId) -> str | None:
        """The answer's text so far; None when it is not running."""
        return self._texts.get(message)

    def running(self, chat: ChatId) -> MessageId | None:
        """The answer that runs in a chat."""
        return self._running.get(chat)
