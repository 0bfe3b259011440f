"""Answers: what handlers return besides results, and replies as bytes, which any front can send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import ERRORS, Code, RelayError
from debug_relay.protocol.operation_row import Operation
from debug_relay.protocol.rendering import text
from debug_relay.protocol.rendering.results import render_json
from debug_relay.protocol.wire import envelope
from debug_relay.protocol.wire.envelope import encode_json, error_body
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.operations.request import Format

Handler = Callable[[Any, Caller], Awaitable[Struct]]

_RETRY_AFTER: Final = "1"


class Document(Struct):
    """A reply without the envelope."""

    body: bytes
    content_type: str
    is_json: bool = False
    text: str | None = None  # its form for readers, if the body is not made for them
    headers: dict[str, str] = {}


class Answer(Struct):
    """A result with a status that differs from its row's."""

    result: Struct
    status: int


class Finished(Struct):
    """A reply as bytes, ready to be sent any number of times."""

    status: int
    body: bytes
    content_type: str = "application/json; charset=utf-8"
    headers: dict[str, str] = {}


def of_document(document: Document, format: Format) -> Finished:
    if document.text is not None and format != "json":
        return Finished(200, document.text.encode(), text.CONTENT_TYPES[format])
    return Finished(200, document.body, document.content_type, document.headers)


def of_result(
    result: Struct, operation: Operation, status: int, request_id: str, format: Format
) -> Finished:
    data = encode_json(result)
    if format == "json":
        return Finished(status, envelope.success(data, request_id))
    lines = render_json(operation.result, data)
    return Finished(status, text.encode_lines(lines, format), text.CONTENT_TYPES[format])


def of_error(error: RelayError, request_id: str, format: Format) -> Finished:
    headers: dict[str, str] = {}
    if error.code is Code.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(error.details.get("allow", []))
    if error.code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    if ERRORS[error.code].retry and error.status in (429, 503):
        headers["Retry-After"] = _RETRY_AFTER
    if format != "json":
        body = text.encode_lines(text.render_error(error), format)
        return Finished(error.status, body, text.CONTENT_TYPES[format], headers)
    body = envelope.failure(error_body(error), request_id)
    return Finished(error.status, body, headers=headers)


def pretty(finished: Finished) -> Finished:
    if not finished.content_type.startswith("application/json"):
        return finished
    body = msgspec.json.format(finished.body, indent=2).rstrip() + b"\n"
    return msgspec.structs.replace(finished, body=body)


class _ErrorCode(Struct):
    code: str


class _Failure(Struct):
    error: _ErrorCode | None = None


def error_code_of(finished: Finished) -> str | None:
    """The error code of a refusal; None if the reply is text."""
    if finished.status < 400 or not finished.content_type.startswith("application/json"):
        return None
    error = msgspec.json.decode(finished.body, type=_Failure).error
    return error.code if error is not None else None
