"""The ids of the desk. Each is its own type, so that one is never passed for another."""

from __future__ import annotations

import secrets
import time
from typing import NewType

ChatId = NewType("ChatId", str)
MessageId = NewType("MessageId", str)
DocumentId = NewType("DocumentId", str)
JobId = NewType("JobId", str)


def _new() -> str:
    # 11 hex digits of milliseconds first, so ids sort by the time they were made.
    return f"{int(time.time() * 1000):011x}{secrets.token_hex(5)}"


def new_chat_id() -> ChatId:
    """A fresh chat id, sortable by creation time."""
    return ChatId("c" + _new())


def new_message_id() -> MessageId:
    """A fresh message id, sortable by creation time."""
    return MessageId("m" + _new())


def new_job_id() -> JobId:
    """A fresh id for one piece of background work."""
    return JobId("j" + _new())
