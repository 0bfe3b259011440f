"""The envelope of every JSON reply, spliced around data that was encoded once, elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import RelayError

encode_json: Final = msgspec.json.Encoder().encode


def timestamp(moment: datetime | None = None) -> str:
    """RFC 3339, UTC, milliseconds."""
    moment = datetime.now(UTC) if moment is None else moment
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def timestamp_of(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))


def _meta(request_id: str) -> bytes:
    # The id may come from a header, whose bytes need not be UTF-8.
    request_id = request_id.encode("utf-8", "backslashreplace").decode()
    return b'{"request_id":%b,"timestamp":"%b"}' % (
        encode_json(request_id),
        timestamp().encode("ascii"),
    )


def success(data: bytes, request_id: str) -> bytes:
    """The whole reply around `data`, which is already JSON."""
    return b'{"success":true,"data":%b,"error":null,"meta":%b}\n' % (data, _meta(request_id))


def failure(error: bytes, request_id: str) -> bytes:
    return b'{"success":false,"data":null,"error":%b,"meta":%b}\n' % (error, _meta(request_id))


class _Reply(msgspec.Struct):
    success: bool
    data: msgspec.Raw
    error: msgspec.Raw


_decode: Final = msgspec.json.Decoder(_Reply).decode


def unwrap(reply: bytes) -> tuple[bool, bytes]:
    """Whether a whole reply is a success, and its `data` or `error`."""
    found = _decode(reply)
    return found.success, bytes(found.data if found.success else found.error)


def error_body(error: RelayError) -> bytes:
    """The `error` member, which a worker sends and the supervisor splices in."""
    body: dict[str, Any] = {
        "code": error.code.value,
        "message": error.message,
        "details": error.details,
    }
    try:
        return encode_json(body)
    except (TypeError, ValueError, UnicodeEncodeError):
        # Details may contain anything that a caller sent (lone surrogates, odd types): show it,
        # never fail.
        body["details"] = _showable(error.details)
        body["message"] = error.message.encode("utf-8", "backslashreplace").decode()
        return encode_json(body)


def _showable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {_showable(str(key)): _showable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_showable(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else ascii(value)
