"""Frames come out as they went in, however the stream cuts them."""

from __future__ import annotations

import itertools
import struct
from collections import deque

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debug_relay.protocol.wire.frames import (
    PIECE_BYTES,
    Caller,
    Decoder,
    Frame,
    FrameError,
    Hello,
    Kind,
    NewsHead,
    ReplyHead,
    RequestHead,
    encode,
)

NEWS = NewsHead(events_end=7, output_end=1 << 40, state=b'{"status":"paused"}')
CALLER = Caller("someone", 1000, ("sessions:read", "sessions:write"))
HEADS = {
    Kind.HELLO: Hello(1, "0.1.0", 4711, "sess_1", 99),
    Kind.REQUEST: RequestHead("evaluate", "req_1", CALLER, 9.5, if_stop=3),
    Kind.REPLY: ReplyHead(NEWS, 200),
    Kind.NEWS: NEWS,
    Kind.TOUCH: None,
    Kind.CANCEL: None,
    Kind.PING: None,
}
FRAMES = st.builds(
    lambda kind, id, payload: Frame(kind, id, HEADS[kind], payload),
    st.sampled_from(list(Kind)),
    st.integers(0, (1 << 32) - 1),
    st.binary(max_size=200),
)


def bytes_of(frame: Frame) -> bytes:
    return encode(frame.kind, frame.id, frame.head, frame.payload)


def decode(stream: bytes, cuts: list[int]) -> list[Frame]:
    decoder = Decoder()
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    frames: list[Frame] = []
    for start, end in itertools.pairwise(edges):
        frames += decoder.feed(stream[start:end])
    return frames


@given(frames=st.lists(FRAMES, max_size=8), cuts=st.lists(st.integers(0, 5000), max_size=20))
def test_any_chunks_give_the_same_frames(frames: list[Frame], cuts: list[int]):
    assert decode(b"".join(map(bytes_of, frames)), cuts) == frames


def test_byte_by_byte():
    frames = [Frame(kind, 3, head, b"payload") for kind, head in HEADS.items()]
    stream = b"".join(map(bytes_of, frames))
    assert decode(stream, list(range(len(stream)))) == frames


def pieces(raw: bytes) -> deque[bytes]:
    """A message's frames, one by one."""
    found: deque[bytes] = deque()
    while raw:
        (length,) = struct.unpack_from("<I", raw)
        found.append(raw[: 4 + length])
        raw = raw[4 + length :]
    return found


@settings(max_examples=40)
@given(
    sizes=st.lists(
        st.sampled_from(
            [
                0,
                10,
                PIECE_BYTES - 1,
                PIECE_BYTES,
                PIECE_BYTES + 1,
                2 * PIECE_BYTES,
                3 * PIECE_BYTES + 5,
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    order=st.randoms(use_true_random=False),
    chunk=st.sampled_from([1000, 65536, 1 << 20, 1 << 24]),
)
def test_large_messages_let_small_ones_pass(sizes: list[int], order, chunk: int):
    """Each message's pieces stay in order; between messages anything may happen."""
    sent = {
        id: Frame(Kind.REPLY, id, HEADS[Kind.REPLY], bytes([id]) * size)
        for id, size in enumerate(sizes, 1)
    }
    queues = [pieces(bytes_of(frame)) for frame in sent.values()]
    assert [len(queue) for queue in queues] == [max(1, -(-size // PIECE_BYTES)) for size in sizes]
    stream = b""
    while queues:
        queue = order.choice(queues)
        stream += queue.popleft()
        queues = [queue for queue in queues if queue]
    decoder = Decoder()
    got = [
        frame
        for at in range(0, len(stream), chunk)
        for frame in decoder.feed(stream[at : at + chunk])
    ]
    assert {frame.id: frame for frame in got} == sent
    assert len(got) == len(sent)


def test_the_same_id_in_both_directions_does_not_mix():
    """A request's large body, and within it a cancel of the same id."""
    large = pieces(encode(Kind.REQUEST, 5, HEADS[Kind.REQUEST], b"x" * (PIECE_BYTES + 1)))
    stream = large[0] + encode(Kind.CANCEL, 5) + large[1]
    kinds = [(frame.kind, len(frame.payload)) for frame in Decoder().feed(stream)]
    assert kinds == [(Kind.CANCEL, 0), (Kind.REQUEST, PIECE_BYTES + 1)]


def test_a_reply_to_a_ping_has_no_head():
    (frame,) = Decoder().feed(encode(Kind.REPLY, 9))
    assert frame == Frame(Kind.REPLY, 9, None, b"")


def test_a_consumer_that_stops_early_loses_nothing():
    decoder = Decoder()
    stream = encode(Kind.PING, 1) + encode(Kind.PING, 2) + encode(Kind.PING, 3)
    feed = decoder.feed(stream)
    assert next(feed).id == 1
    feed.close()
    assert [frame.id for frame in decoder.feed(b"")] == [2, 3]


def frame(kind: int, head: bytes = b"", head_length: int | None = None, flags: int = 0) -> bytes:
    length = len(head) if head_length is None else head_length
    return struct.pack("<IIBBI", 10 + len(head), 1, kind, flags, length) + head


@pytest.mark.parametrize(
    "stream",
    [
        struct.pack("<I", 9) + b"x" * 9,
        struct.pack("<I", (64 << 20) + 1),
        b"HTTP/1.1 200 OK\r\n",
        frame(99),
        frame(Kind.PING, head_length=5),
        frame(Kind.HELLO, b"\xc1"),
        frame(Kind.NEWS, msgspec.msgpack.encode(["not", "numbers"])),
        frame(Kind.NEWS),
    ],
    ids=["short", "huge", "http", "kind", "head", "msgpack", "shape", "empty"],
)
def test_bytes_that_are_no_frames_end_the_stream(stream: bytes):
    with pytest.raises(FrameError):
        list(Decoder().feed(stream))


def test_a_message_in_pieces_is_bounded():
    decoder = Decoder(max_bytes=PIECE_BYTES * 2)
    with pytest.raises(FrameError, match="more than"):
        list(decoder.feed(encode(Kind.REPLY, 1, HEADS[Kind.REPLY], b"x" * (PIECE_BYTES * 3))))


@given(stream=st.binary(max_size=300))
def test_any_bytes_are_frames_or_a_frame_error(stream: bytes):
    decoder = Decoder(max_bytes=4096)
    try:
        for one in decoder.feed(stream):
            assert isinstance(one, Frame)
    except FrameError:
        return
