"""Length-prefixed frames and the envelopes that travel in them between the UI process and a child.

A frame is eight bytes of big-endian length, then one pickled envelope. Pickle is safe here and only here:
both ends are the same program of the same version, joined by private pipes that nobody else can open.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import NewType

CallId = NewType("CallId", int)
"""Numbers the calls of one child's life; never reused within it."""

_LENGTH = struct.Struct(">Q")
MAX_FRAME_BYTES = 1 << 30
"""A longer length can only be garbage on the pipe: the largest honest frame is a document's text."""

CANCELLED_KIND = "CallCancelled"
"""The kind of the Failure that a child sends for a call it dropped on request."""


class FrameError(Exception):
    """The bytes on the pipe are no frames; the connection cannot be used any more."""


@dataclass(frozen=True, slots=True)
class Call:
    """UI to child: do this. Answered by any number of Events and then one Result or Failure."""

    id: CallId
    payload: object


@dataclass(frozen=True, slots=True)
class Cancel:
    """UI to child: the answer to this call is no longer wanted."""

    id: CallId


@dataclass(frozen=True, slots=True)
class Stop:
    """UI to child: finish what runs, close and exit."""


@dataclass(frozen=True, slots=True)
class Event:
    """Child to UI: a part of a call's answer, in order."""

    id: CallId
    payload: object


@dataclass(frozen=True, slots=True)
class Result:
    """Child to UI: the end of a call that went well."""

    id: CallId
    payload: object


@dataclass(frozen=True, slots=True)
class Failure:
    """Child to UI: the end of a call that did not. `kind` is the exception's class name."""

    id: CallId
    sentence: str
    kind: str


@dataclass(frozen=True, slots=True)
class Push:
    """Child to UI: news that belongs to no call."""

    payload: object


ToChild = Call | Cancel | Stop
ToParent = Event | Result | Failure | Push
Envelope = ToChild | ToParent


def encode(envelope: Envelope) -> bytes:
    """One frame, ready to be written. Raises FrameError when it would be longer than MAX_FRAME_BYTES."""
    body = pickle.dumps(envelope, protocol=pickle.HIGHEST_PROTOCOL)
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(body)} bytes is longer than the limit of {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Takes bytes as they come, cut anywhere, and gives back whole envelopes in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def partial(self) -> bool:
        """Whether the stream so far ends in the middle of a frame."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[Envelope]:
        """The envelopes that `data` completes. Raises FrameError on bytes that are no frames."""
        self._buffer += data
        envelopes: list[Envelope] = []
        start = 0
        with memoryview(self._buffer) as view:
            while len(view) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, start)
                if length > MAX_FRAME_BYTES:
                    raise FrameError(f"a frame claims {length} bytes")
                end = start + _LENGTH.size + length
                if end > len(view):
                    break
                envelopes.append(_unpickle(view[start + _LENGTH.size : end]))
                start = end
        # One cut per call, not per frame: a burst of small events costs one move of the tail.
        del self._buffer[:start]
        return envelopes


def _unpickle(body: memoryview) -> Envelope:
    with body:
        try:
            envelope = pickle.loads(body)
        except Exception as error:
            raise FrameError(f"a frame cannot be read: {error!r}") from error
    if not isinstance(envelope, Envelope):
        raise FrameError(f"a frame holds a {type(envelope).__name__}, which is no envelope")
    return envelope
