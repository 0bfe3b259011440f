"""Environment files: `NAME=value` lines as shells and dotenv tools write them.

Reads text, knows nothing of sessions. What it cannot read it refuses with the line: a variable that
is silently missing is found out hours later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from debug_relay.protocol.errors import Code, RelayError

_MOST_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*")
_REST: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|$)")
_SKIPPED: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)+|[ \t]*(?:#[^\n]*)?$")
_COMMENT: Final = re.compile(r"(?:^|[ \t]+)#.*")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE: Final = re.compile(r"'([^']*)'")
_REFERENCE: Final = re.compile(r"\\\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\n": ""}


def read(path: str, known: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file; `${NAME}` in it may name those `known` and those before it."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _refused(path, f"it is not UTF-8 at byte {error.start}") from None
    if len(raw) > _MOST_BYTES:
        raise _refused(path, f"it is longer than {_MOST_BYTES} bytes")
    try:
        return parse(text, known)
    except ValueError as error:
        raise _refused(path, str(error)) from None


def parse(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """Raises ValueError with the line of what is no assignment."""
    text = text.replace("\r\n", "\n")
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        skipped = _SKIPPED.match(text, at)
        if skipped is not None and skipped.end() > at:
            at = skipped.end()
            continue
        line = text.count("\n", 0, at) + 1
        name = _NAME.match(text, at)
        if name is None:
            raise ValueError(f"line {line} is no NAME=value: {_line(text, at)!r}")
        value, at = _value(text, name.end(), line, {**known, **found})
        if "\0" in value:
            raise ValueError(f"line {line}: the value of {name.group(1)} holds a NUL")
        found[name.group(1)] = value
    return found


def _value(text: str, at: int, line: int, known: Mapping[str, str]) -> tuple[str, int]:
    """The value that begins at `at`, and where the next line begins."""
    quote = text[at : at + 1]
    if quote not in ("'", '"'):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        plain = _COMMENT.sub("", text[at:end]).rstrip()
        return _expanded(plain, known), end + 1
    quoted = (_DOUBLE if quote == '"' else _SINGLE).match(text, at)
    if quoted is None:
        raise ValueError(f"line {line}: the quote {quote} is never closed")
    rest = _REST.match(text, quoted.end())
    if rest is None:
        raise ValueError(f"line {line}: there is text behind the closing {quote}")
    value = quoted.group(1)
    if quote == '"':
        value = _unescaped(value, known)
    return value, rest.end()


def _unescaped(text: str, known: Mapping[str, str]) -> str:
    # Escapes are undone in what was written, not in what a reference brings in.
    parts: list[str] = []
    at = 0
    for found in _REFERENCE.finditer(text):
        parts += [_plain(text[at : found.start()]), _resolved(found, known)]
        at = found.end()
    return "".join([*parts, _plain(text[at:])])


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def _expanded(text: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: _resolved(found, known), text)


def _resolved(found: re.Match[str], known: Mapping[str, str]) -> str:
    name, default = found.groups()
    if name is None:
        return "$"
    return known.get(name) or default or ""


def _line(text: str, at: int) -> str:
    # Without the value: it may be a secret that was written in a wrong way.
    return text[at:].split("\n", 1)[0].split("=", 1)[0][:80]


def _refused(path: str, reason: str) -> RelayError:
    return RelayError(
        Code.INVALID_REQUEST,
        f"The env_file {path}: {reason}",
        "Correct the file (one NAME=value a line), or send the variables in env.",
        errors=[{"field": "env_file", "message": reason, "value": path}],
    )
