"""Parses the bytes of a request into a JSON object, or says where and why they are not one.

It knows JSON and nothing of operations. Numbers without a fraction are integers, as in JSON Schema.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import MOST_PROBLEMS, Problem

# A strict parser takes half a surrogate pair for the end of the text.
_HALF: Final = re.compile(r"\\u([dD][89a-fA-F][0-9a-fA-F]{2})")
MOST_VALUES: Final = 200_000  # Values in one request body.
DEEPEST: Final = 64  # Levels of one request body.
_BEGINNINGS: Final = (b",", b"[", b"{")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_EXACT: Final = 2.0**53  # above this, one float represents several integers


def parse_json(body: bytes) -> dict[str, Any]:
    """The body as an object; an empty body is `{}`."""
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
    _require_bounded(body)
    try:
        value = _decode(text)
        twice = _given_twice(text)
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
            f"The body gives {', '.join(one.field for one in twice[:3])} twice",
            "Give each name once in an object.",
            errors=twice,
        )
    return value


# -- bounds, checked before any Python object is made


def _require_bounded(body: bytes) -> None:
    """Refuses a body that would cost seconds and hundreds of megabytes as Python objects."""
    if sum(map(body.count, _BEGINNINGS)) <= DEEPEST:
        return  # nearly every body
    outside = _outside_texts(body)
    # One value begins with the text, one with each bracket and one after each comma. That is an
    # upper bound, because an empty bracket holds none.
    if outside is None or 1 + sum(map(outside.count, _BEGINNINGS)) > MOST_VALUES:
        raise _too_much(
            f"more than {MOST_VALUES} values", f"Send at most {MOST_VALUES} values in one body."
        )
    brackets = outside.translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(DEEPEST):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")  # removes the innermost ones
    # Unclosed brackets add no depth: the parser reports where they are.
    if b"[]" in brackets:
        levels = f"{DEEPEST} levels of brackets"
        raise _too_much(f"more than {levels} in depth", f"Send at most {levels}.")


def _outside_texts(body: bytes) -> bytes | None:
    """The body without its double-quoted texts; None if there are too many of them.

    For a body that is not JSON, the result is correct up to the first mistake, and parsing ends
    there.
    """
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    # A value and its name may both be texts, each with two quotes.
    if plain.count(b'"') > 4 * MOST_VALUES:
        return None
    return b"".join(plain.split(b'"')[::2])


def _too_much(what: str, advice: str) -> RelayError:
    return RelayError(
        Code.INVALID_REQUEST,
        f"The body has {what}",
        advice,
        errors=[Problem("", f"has {what}")],
    )


def _number(text: str) -> int | float:
    value = float(text)
    if value - value != 0:
        raise ValueError("Number out of range")
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


_decode: Final = msgspec.json.Decoder(float_hook=_number).decode


def _malformed(text: str, reason: str) -> RelayError:
    # msgspec reports the byte; a person needs line and column.
    found = re.search(r"\(byte (\d+)\)", reason)
    if found is None and "truncated" not in reason:
        return _unreadable(reason)
    if (half := _half_a_pair(text)) is not None:
        return _at(text[:half], "half of a surrogate pair, which is not a character,")
    at = int(found.group(1)) if found else len(text.encode())
    at -= "trailing characters" in reason  # here msgspec names the byte after the first of them
    reason = re.sub(r"\s*\(byte \d+\)", "", reason.removeprefix("JSON is malformed: "))
    return _at(text.encode()[:at].decode("utf-8", "ignore"), reason)


def _at(before: str, reason: str) -> RelayError:
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return RelayError(
        Code.INVALID_REQUEST,
        f"The body is not JSON: {reason} at line {line}, column {column}",
        "Correct the JSON; names and texts need double quotes.",
        line=line,
        column=column,
        errors=[Problem("", f"{reason} at line {line}, column {column}")],
    )


def _half_a_pair(text: str) -> int | None:
    """The place of the first lone `\\ud800`, if that is the only mistake."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    waiting: re.Match[str] | None = None
    # An escaped backslash begins no escape.
    for escape in _HALF.finditer(text.replace(r"\\", "  ")):
        unit = int(escape.group(1), 16)
        is_second = 0xDC00 <= unit < 0xE000
        follows = waiting is not None and waiting.end() == escape.start()
        if waiting is not None and not (is_second and follows):
            return waiting.start()
        if is_second and waiting is None:
            return escape.start()
        waiting = None if is_second else escape
    return waiting.start() if waiting is not None else None


def _unreadable(reason: str) -> RelayError:
    """The refusal of a number that is too large or nesting that is too deep: the parser does not
    say where.
    """
    reason = reason[:1].lower() + reason.partition(" - at ")[0][1:]
    return RelayError(
        Code.INVALID_REQUEST,
        f"The body is JSON that exceeds the parser's limits: {reason}",
        "Send numbers that fit a double, and fewer levels of brackets.",
        errors=[Problem("", reason)],
    )


# -- names that are given twice: one of the two values would be lost silently


class _Twice:
    """Replaces a value whose name is given twice in its object."""


def _given_twice(text: str) -> list[Problem]:
    if text.count(":") < 2:  # one behind each name
        return []
    is_any = False

    def marked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal is_any
        found = dict(pairs)
        if len(found) != len(pairs):
            is_any = True
            counts = Counter(name for name, _ in pairs)
            found.update((name, _Twice()) for name, count in counts.items() if count > 1)
        return found

    # The values do not matter here, and a text is parsed faster than a number.
    read = json.JSONDecoder(object_pairs_hook=marked, parse_int=str, parse_float=str).decode
    value = read(text)
    places = itertools.islice(_places(value, ""), MOST_PROBLEMS) if is_any else ()
    return [Problem(place, "given twice") for place in places]


def _places(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, _Twice):
        yield at
    elif isinstance(value, dict):
        prefix = f"{at}." if at else ""
        for name, item in value.items():
            yield from _places(item, prefix + name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, f"{at}[{index}]")


def _kind(value: Any) -> str:
    names = {list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
