"""Talks on their way to a digest: from the memory, which knows what is not summed up yet, past the engine, which sums
it up in the background, and back. See `app.host.wire`."""

from __future__ import annotations

from dataclasses import dataclass

from app.ids import ChatId, MessageId


@dataclass(frozen=True, slots=True)
class NextSegment:
    """Ask the memory for turns to sum up next; those in `visible` are still in a window. The answer is a Segment, or
    None when there is nothing to do."""

    visible: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Turns of one chat and one day, and what a model is asked about them, in at most `max_tokens`."""

    chat: ChatId
    title: str
    messages: tuple[MessageId, ...]
    question: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class SummariseRequest:
    """Ask the engine, in the background: it waits for every answer and makes room for it. The answer's text comes as
    Delta, Finished last. Fails with EngineError where the chats that are open would lose their place, or where the
    question does not fit the window."""

    question: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class KeepDigest:
    """Store the digest of `messages`: `summary` by the model `maker`, if it can be believed, else (or when it is "") an
    extract. The answer is a KeptDigest, or None when one of the messages was forgotten meanwhile."""

    chat: ChatId
    messages: tuple[MessageId, ...]
    summary: str
    maker: str


@dataclass(frozen=True, slots=True)
class KeptDigest:
    """A digest as it was stored, and who made it; `refused` says what was wrong with the model's summary, if it was."""

    text: str
    maker: str
    refused: str
