"""What never leaves a window: the system prompt, and after it the messages that a person pinned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.config import MIN_RING_PAGES, EngineConfig
from engine.model.load import LoadedModel
from engine.session import MessageSpan
from engine.types import EngineError, MessageKey, Position, QuotaError
from engine.window import WindowShape

PINNED_SHARE = 0.5
"""Of the quota, what pinned messages may take at most."""


class Role(StrEnum):
    """Who speaks in a pinned message."""

    USER = "user"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class PinnedMessage:
    """A message that stays in the window whatever follows."""

    key: MessageKey
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Sinks:
    """A session's first tokens, as the model's own template writes them.

    spans: where the pinned messages lie, the system prompt before the first.
    users: ends of the user messages among them.
    """

    tokens: list[int]
    spans: tuple[MessageSpan, ...]
    users: list[Position]

    @property
    def system_tokens(self) -> int:
        """Tokens of the system prompt alone."""
        return self.spans[0].first if self.spans else len(self.tokens)


def rendered(model: LoadedModel, system: str, pinned: Sequence[PinnedMessage]) -> Sinks:
    """The system prompt and the pinned messages in their order. Raises EngineError when one is pinned twice."""
    tokenizer, template = model.tokenizer, model.template
    tokens = tokenizer.encode_start(template.system_prompt(system))
    spans: list[MessageSpan] = []
    users: list[Position] = []
    for message in pinned:
        if any(span.key == message.key for span in spans):
            raise EngineError(f"message {message.key} is pinned twice to this chat's window: pin it once")
        piece = template.user(first=not users) if message.role is Role.USER else template.answer
        first = Position(len(tokens))
        tokens += tokenizer.encode_message(piece.before, template.content(message.text), piece.after)
        spans.append(MessageSpan(message.key, first, Position(len(tokens))))
        if message.role is Role.USER:
            users.append(spans[-1].end)
    return Sinks(tokens, tuple(spans), users)


def shape_beside(sinks: Sinks, config: EngineConfig) -> WindowShape:
    """The quota, shared between the sinks and the ring. Raises QuotaError when that leaves no room for a ring, or when
    the pinned messages take more than their share: a chat has to have room to go on."""
    page, quota = config.page_size, config.quota_pages
    most = (quota - MIN_RING_PAGES) * page
    if sinks.system_tokens > most:
        pages = -(-sinks.system_tokens // page)
        raise QuotaError(
            f"the system prompt takes {sinks.system_tokens} tokens ({pages} pages of {page}) of a "
            f"window of {quota} pages and leaves {max(0, quota - pages)} for the chat; "
            f"at least {MIN_RING_PAGES} are needed: shorten it or allow a larger window"
        )
    taken = len(sinks.tokens) - sinks.system_tokens
    allowed = min(int(PINNED_SHARE * quota * page), most - sinks.system_tokens)
    if taken > allowed:
        raise QuotaError(
            f"what is pinned takes {taken} tokens; {allowed} are allowed of a window of {quota * page}, so that the "
            "chat has room to go on: unpin a message or allow a larger window"
        )
    return WindowShape(page, len(sinks.tokens), quota - -(-len(sinks.tokens) // page))
