"""The Debug Adapter Protocol as far as we use it: framing and the few types. Sans I/O.

Bodies stay `Raw` until someone reads their fields; a body that is only passed on is never decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

_NULL: Final = Raw(b"null")
# One DAP message. debugpy itself refuses messages above 16 MiB, so a peer that announces more
# than this is not debugpy.
MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
_START: Final = b"content-"  # both possible headers begin like this
_USUAL: Final = re.compile(rb"Content-Length: ([0-9]{1,19})\r\n\r\n")  # nearly every header
_HEADER_BYTES: Final = 4096  # All headers of one message.
# A message that is too large is left out; one so many times larger ends the connection.
_MOST_LEFT_OUT: Final = 16


class Message(Struct):
    """Request, response or event, as `type` says."""

    type: str
    seq: int = 0
    command: str = ""
    arguments: Raw = _NULL
    request_seq: int = 0
    success: bool = False
    message: str | None = None
    event: str = ""
    body: Raw = _NULL


class SeenChange(Struct):
    """A change that a watchpoint has seen. Without a place it is unknown which line made it."""

    id: str
    before: str
    after: str
    path: str | None = None
    line: int | None = None
    function: str | None = None


class StoppedBody(Struct, rename="camel"):
    reason: str
    thread_id: int | None = None
    description: str | None = None
    text: str | None = None
    all_threads_stopped: bool = True
    preserve_focus_hint: bool = False
    hit_breakpoint_ids: list[int] | None = None
    # Added by the probe: function, path, line and module.
    relay_place: tuple[str, str, int, str | None] | None = None
    relay_passed: tuple[str, str] | None = None  # type and message of what a step has passed
    relay_changes: list[SeenChange] | None = None


class ContinuedBody(Struct, rename="camel"):
    thread_id: int | None = None
    all_threads_continued: bool = True


class ThreadBody(Struct, rename="camel"):
    reason: str
    thread_id: int


class OutputBody(Struct, rename="camel"):
    output: str = ""
    category: str | None = None


class Module(Struct, rename="camel"):
    id: int | str
    name: str
    path: str | None = None


class ModuleBody(Struct, rename="camel"):
    reason: str
    module: Module


class Modules(Struct, rename="camel"):
    modules: list[Module] = []


class SourceText(Struct, rename="camel"):
    content: str = ""


class VariableSet(Struct, rename="camel"):
    value: str
    type: str | None = None
    variables_reference: int = 0


class CompletionItem(Struct):
    label: str
    type: str | None = None
    start: int | None = None
    length: int | None = None


class Completions(Struct):
    targets: list[CompletionItem] = []


class Thread(Struct):
    id: int
    name: str


class Threads(Struct):
    threads: list[Thread] = []


class Source(Struct, rename="camel"):
    path: str | None = None
    name: str | None = None
    source_reference: int | None = None


class StackFrame(Struct, rename="camel"):
    id: int
    name: str
    line: int
    column: int = 1
    source: Source | None = None
    presentation_hint: str | None = None


class StackTrace(Struct, rename="camel"):
    stack_frames: list[StackFrame] = []
    total_frames: int = 0


class Scope(Struct, rename="camel"):
    name: str
    variables_reference: int
    expensive: bool = False
    presentation_hint: str | None = None


class Scopes(Struct):
    scopes: list[Scope] = []


class Variable(Struct, rename="camel"):
    name: str
    value: str
    type: str | None = None
    variables_reference: int = 0
    presentation_hint: Any = None


class Variables(Struct):
    variables: list[Variable] = []


class Evaluation(Struct, rename="camel"):
    result: str = ""
    type: str | None = None
    variables_reference: int = 0
    presentation_hint: Any = None


class SetBreakpoint(Struct, rename="camel"):
    verified: bool = False
    line: int | None = None
    message: str | None = None
    id: int | None = None


class SetBreakpoints(Struct):
    breakpoints: list[SetBreakpoint] = []


class ExceptionDetails(Struct, rename="camel"):
    message: str | None = None
    type_name: str | None = None
    stack_trace: str | None = None


class ExceptionInfo(Struct, rename="camel"):
    exception_id: str = ""
    description: str | None = None
    break_mode: str | None = None
    details: ExceptionDetails | None = None


class ProcessInfo(Struct, frozen=True):
    pid: int = 0
    ppid: int = 0
    executable: str | None = None


class PythonInfo(Struct, frozen=True):
    version: str = ""


class SystemInfo(Struct):
    process: ProcessInfo = ProcessInfo()
    python: PythonInfo = PythonInfo()


class DapError(Exception):
    """The peer sent bytes that are not DAP."""


_decode: Final = msgspec.json.Decoder(Message).decode
_encode: Final = msgspec.json.Encoder().encode


def encode_request(seq: int, command: str, arguments: Any = None) -> bytes:
    return encode({"seq": seq, "type": "request", "command": command, "arguments": arguments or {}})


def encode(message: Mapping[str, Any]) -> bytes:
    """One message with its header."""
    try:
        body = _encode(message)
    except UnicodeEncodeError:  # a file name whose bytes are not UTF-8
        body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def decode_message(body: bytes) -> Message:
    """One message. Lone surrogates, which a program can put into any text, are escaped."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            loose = json.loads(body)
        except (ValueError, RecursionError):
            raise DapError(f"not a DAP message: {error}") from None
    try:
        return _decode(_encode(_without_surrogates(loose)))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise DapError(f"not a DAP message: {error}") from None


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    return value


class Decoder:
    """Feed it the bytes of the socket; iterate over the complete messages."""

    def __init__(self, most_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """`most_bytes`: one message of the peer's."""
        self._buffer = bytearray()
        self._most_bytes = most_bytes
        self._left_out = 0  # bytes of a message that is too large, which are still to come

    def feed(self, data: bytes) -> Iterator[Message]:
        for body in self.bodies(data):
            if body is None:
                raise DapError(f"a message is larger than {self._most_bytes} bytes")
            yield decode_message(body)

    def bodies(self, data: bytes) -> Iterator[bytes | None]:
        """The complete bodies, unread; None for one that is too large and is left out."""
        self._buffer += data
        while True:
            if self._left_out:
                leave = min(self._left_out, len(self._buffer))
                del self._buffer[:leave]
                self._left_out -= leave
            usual = _USUAL.match(self._buffer)
            if usual is not None:
                start, length = usual.end(), int(usual[1])
            else:
                self._require_header()
                end = self._buffer.find(b"\r\n\r\n")
                if end < 0:
                    return
                start, length = end + 4, self._length(bytes(self._buffer[:end]))
            if length > self._most_bytes * _MOST_LEFT_OUT:
                raise DapError(f"a message of {length} bytes")
            if length > self._most_bytes:
                del self._buffer[:start]
                self._left_out = length
                yield None
                continue
            if len(self._buffer) < start + length:
                return
            body = bytes(self._buffer[start : start + length])
            del self._buffer[: start + length]
            yield body

    def _require_header(self) -> None:
        """Refuse a wrong beginning at once, because the rest may never arrive."""
        start = bytes(self._buffer[: len(_START)])
        if not _START.startswith(start.lower()):
            raise DapError(f"the data begins with {bytes(self._buffer[:40])!r}")
        if len(self._buffer) > _HEADER_BYTES and b"\r\n\r\n" not in self._buffer:
            raise DapError(f"no header in {_HEADER_BYTES} bytes")

    def _length(self, head: bytes) -> int:
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            value = value.strip()
            # We bound the digits because int() raises an error of its own for thousands of them.
            if name.strip().lower() == b"content-length" and value.isdigit() and len(value) < 20:
                return int(value)
        raise DapError(f"a header without a usable length: {head[:80]!r}")
