from __future__ import annotations

import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.host.frames import (
    Call,
    CallId,
    Cancel,
    Envelope,
    Event,
    Failure,
    FrameDecoder,
    FrameError,
    Push,
    Result,
    Stop,
    encode,
)

ids = st.integers(min_value=0, max_value=2**63).map(CallId)
payloads = st.recursive(
    st.none() | st.integers() | st.text() | st.binary(max_size=3000), lambda inner: st.tuples(inner, inner)
)
envelopes: st.SearchStrategy[Envelope] = st.one_of(
    st.builds(Call, ids, payloads),
    st.builds(Cancel, ids),
    st.builds(Stop),
    st.builds(Event, ids, payloads),
    st.builds(Result, ids, payloads),
    st.builds(Failure, ids, st.text(), st.text()),
    st.builds(Push, payloads),
)


@given(st.lists(envelopes, max_size=8), st.data())
def test_frames_survive_any_cut(sent: list[Envelope], data: st.DataObject) -> None:
    stream = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder()
    received: list[Envelope] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent
    assert not decoder.partial


@given(st.lists(envelopes, min_size=1, max_size=3))
def test_frames_survive_single_bytes(sent: list[Envelope]) -> None:
    decoder = FrameDecoder()
    received = [envelope for byte in b"".join(map(encode, sent)) for envelope in decoder.feed(bytes([byte]))]
    assert received == sent


@given(envelopes, st.integers(min_value=1))
def test_a_cut_frame_gives_nothing_and_is_seen(envelope: Envelope, cut: int) -> None:
    frame = encode(envelope)
    decoder = FrameDecoder()
    assert decoder.feed(frame[: -(cut % len(frame)) or -1]) == []
    assert decoder.partial or cut % len(frame) == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 8,
        struct.pack(">Q", 4) + b"\x80\x05ab",
        struct.pack(">Q", 0),
        struct.pack(">Q", len(pickle.dumps("text"))) + pickle.dumps("text"),
    ],
)
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(FrameError):
        FrameDecoder().feed(garbage)
