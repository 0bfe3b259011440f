"""From the bytes of a request to a JSON object, or to where and why they are none.

Knows JSON and nothing of operations. Numbers without a fraction are integers, as in JSON Schema.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import MOST_PROBLEMS, Problem

# A reader that is strict takes half a pair for the end of the text.
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_EXACT: Final = 2.0**53  # larger floats stand for many integers


def parse_json(body: bytes) -> dict[str, Any]:
    """The body as an object; an empty one is `{}`."""
    if not body.strip():
        return {}
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RelayError(
            Code.INVALID_REQUEST,
            f"The body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}",
            "Send the body as UTF-8.",
            errors=[Problem("", f"not UTF-8 at byte {error.start}")],
        ) from None
    try:
        value = _decode(text)
        twice = _places(_pairs(text), "")
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(text, str(error)) from None
    if not isinstance(value, dict):
        raise RelayError(
            Code.INVALID_REQUEST,
            f"The body is a JSON {_kind(value)}, not an object",
            'Send an object, such as {"name": "value"}.',
            errors=[Problem("", "must be an object", value)],
        )
    if twice:
        raise RelayError(
            Code.INVALID_REQUEST,
            f"The body gives {', '.join(twice[:3])} twice",
            "Give each name once in an object.",
            errors=[Problem(place, "given twice") for place in twice[:MOST_PROBLEMS]],
        )
    return value


def _number(text: str) -> int | float:
    value = float(text)
    if value - value != 0:
        raise ValueError("Number out of range")
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


_decode: Final = msgspec.json.Decoder(float_hook=_number).decode


def _malformed(text: str, reason: str) -> RelayError:
    # msgspec tells the byte; a person needs line and column.
    found = re.search(r"\(byte (\d+)\)", reason)
    if found is None and "truncated" not in reason:
        return _unreadable(reason)
    if (half := _half_a_pair(text)) is not None:
        return _at(text[:half], "half of a surrogate pair, which is no character,")
    at = int(found.group(1)) if found else len(text.encode())
    at -= "trailing characters" in reason  # here it names the byte behind the first of them
    reason = re.sub(r"\s*\(byte \d+\)", "", reason.removeprefix("JSON is malformed: "))
    return _at(text.encode()[:at].decode("utf-8", "ignore"), reason)


def _at(before: str, reason: str) -> RelayError:
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return RelayError(
        Code.INVALID_REQUEST,
        f"The body is not JSON: {reason} at line {line}, column {column}",
        "Correct the JSON; names and texts stand in double quotes.",
        line=line,
        column=column,
        errors=[Problem("", f"{reason} at line {line}, column {column}")],
    )


def _half_a_pair(text: str) -> int | None:
    """Where the first `\\ud800` stands without its other half, if that is all that is wrong."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    waiting: re.Match[str] | None = None
    for escape in _ESCAPE.finditer(text):
        unit = int(escape.group(1) or "0", 16)
        is_second = 0xDC00 <= unit < 0xE000
        follows = waiting is not None and waiting.end() == escape.start()
        if waiting is not None and not (is_second and follows):
            return waiting.start()
        if is_second and waiting is None:
            return escape.start()
        waiting = escape if 0xD800 <= unit < 0xDC00 else None
    return waiting.start() if waiting is not None else None


def _unreadable(reason: str) -> RelayError:
    """Too deep, or a number that is too large: the parser does not tell where."""
    reason = reason[:1].lower() + reason.partition(" - at ")[0][1:]
    return RelayError(
        Code.INVALID_REQUEST,
        f"The body is JSON beyond what can be read: {reason}",
        "Send numbers that fit a double, and fewer levels of brackets.",
        errors=[Problem("", reason)],
    )


# -- names that are given twice: one of the two values would be lost without a word


class _Twice:
    """In place of a value whose name stands twice in its object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        found.update((name, _Twice()) for name, count in counts.items() if count > 1)
    return found


# Values do not matter here, and a text is read quicker than a number.
_pairs: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=str, parse_float=str).decode


def _places(value: Any, at: str) -> list[str]:
    if isinstance(value, _Twice):
        return [at]
    if isinstance(value, dict):
        prefix = f"{at}." if at else ""
        return [place for name in value for place in _places(value[name], prefix + name)]
    if isinstance(value, list):
        items = enumerate(value)
        return [place for index, item in items for place in _places(item, f"{at}[{index}]")]
    return []


def _kind(value: Any) -> str:
    names = {list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
