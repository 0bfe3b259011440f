"""DAP messages come out whole however the socket cuts them, and whatever a program put in."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode as decode_json

from debug_relay.protocol.wire.dap import (
    MAX_MESSAGE_BYTES,
    DapError,
    Decoder,
    Message,
    OutputBody,
    SystemInfo,
    decode_message,
    encode_request,
)
from debug_relay.protocol.wire.envelope import encode_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
# What json.dumps writes for these is pure ASCII: lone surrogates travel as escapes.
LOOSE_TEXT = st.text(st.characters(categories=["L", "Cs", "Zs", "Sm"]), max_size=20)


def framed(body: bytes, header: bytes = b"Content-Length: %d\r\n\r\n") -> bytes:
    return header % len(body) + body


def feed(stream: bytes, cuts: list[int]) -> list[Message]:
    decoder = Decoder()
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    return [
        message
        for start, end in itertools.pairwise(edges)
        for message in decoder.feed(stream[start:end])
    ]


@given(bodies=st.lists(JSON, max_size=6), cuts=st.lists(st.integers(0, 3000), max_size=20))
def test_any_chunks_give_the_same_messages(bodies: list, cuts: list[int]):
    stream = b"".join(
        framed(encode_json({"type": "event", "event": "output", "seq": n, "body": body}))
        for n, body in enumerate(bodies)
    )
    found = feed(stream, cuts)
    assert [message.seq for message in found] == list(range(len(bodies)))
    assert [decode_json(message.body) for message in found] == bodies


def test_byte_by_byte():
    stream = encode_request(1, "threads") + encode_request(
        2, "evaluate", {"expression": "é\r\n\r\n"}
    )
    found = feed(stream, list(range(len(stream))))
    assert [(m.seq, m.type, m.command) for m in found] == [
        (1, "request", "threads"),
        (2, "request", "evaluate"),
    ]
    assert decode_json(found[0].arguments) == {}
    assert decode_json(found[1].arguments) == {"expression": "é\r\n\r\n"}


@pytest.mark.parametrize(
    "header",
    [
        b"content-length:%d\r\n\r\n",
        b"Content-Type: x\r\nContent-Length:   %d  \r\n\r\n",
        b"Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc\r\n\r\n",
    ],
)
def test_other_headers_and_cases(header: bytes):
    (message,) = Decoder().feed(framed(b'{"type":"event","event":"x"}', header))
    assert message.event == "x"


def test_a_large_message():
    body = encode_json({"type": "event", "body": {"output": "x" * 5_000_000}})
    stream = framed(body) + encode_request(1, "next")
    large, small = feed(stream, list(range(0, len(stream), 65536)))
    assert len(decode_json(large.body, type=OutputBody).output) == 5_000_000
    assert small.command == "next"


@given(cuts=st.lists(st.integers(0, 400), max_size=20))
def test_a_body_that_is_too_large_is_left_out(cuts: list[int]):
    stream = framed(b"small") + framed(b"x" * 300) + framed(b"next")
    decoder = Decoder(100)
    edges = [0, *sorted({cut % len(stream) for cut in cuts}), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    found = [body for piece in pieces for body in decoder.bodies(piece)]
    assert found == [b"small", None, b"next"]


@given(text=LOOSE_TEXT, key=LOOSE_TEXT)
def test_lone_surrogates_are_shown_escaped(text: str, key: str):
    loose = {"type": "event", "body": {"output": text, "more": [{key: text}]}}
    message = decode_message(json.dumps(loose).encode())
    assert decode_json(message.body) == {
        "output": shown(text),
        "more": [{shown(key): shown(text)}],
    }


def shown(text: str) -> str:
    paired = json.loads(json.dumps(text))  # to JSON a pair of surrogates is one character
    return paired.encode("utf-8", "backslashreplace").decode()


def test_a_surrogate_among_text():
    (message,) = Decoder().feed(framed(b'{"type":"event","body":{"output":"a\\udc80b"}}'))
    assert decode_json(message.body, type=OutputBody).output == "a\\udc80b"


def test_a_known_gap_has_defaults():
    assert decode_json(b"{}", type=SystemInfo).process.pid == 0
    assert decode_json(b'{"process":{"pid":5}}', type=SystemInfo).process.pid == 5


@pytest.mark.parametrize(
    "stream",
    [
        b"x",
        b"HTTP/1.1",
        b"Content-X: " + b"x" * 5000,
        b"Content-Length: ten\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: %d\r\n\r\n" % (MAX_MESSAGE_BYTES + 1),
        b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"Content-Type: x\r\n\r\n",
        framed(b"not json"),
        framed(b"[]"),
        framed(b"{}"),
        framed(b'{"type": 5}'),
        framed(b'{"type":"event","body":"\xff"'),
        framed(b'{"type":"event","body":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        framed(b'{"type":"\\ud800","body":' + b"[" * 900 + b"]" * 900 + b"}"),
    ],
    ids=lambda stream: stream[:32],
)
def test_bytes_that_are_no_dap(stream: bytes):
    with pytest.raises(DapError):
        list(Decoder().feed(stream))


@given(stream=st.binary(max_size=200) | st.binary(max_size=100).map(framed))
def test_any_bytes_are_messages_or_a_dap_error(stream: bytes):
    try:
        for message in Decoder().feed(stream):
            assert isinstance(message, Message)
    except DapError:
        return
