"""Environment files: `NAME=value` lines as shells and dotenv tools write them.

This module reads text and knows nothing of sessions. It refuses a line that it cannot read, and
names it: a variable that is silently missing costs hours.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.system.files import FileRefused, read_bounded

_MOST_BYTES: Final = 1 << 20  # One env file.
# The values of one env file together. The kernel gives a program no more than that, and
# references multiply: without a bound a few lines would fill the memory.
_MOST_VALUE_BYTES: Final = 6 << 20
# No pattern here may take more than linear time, because we do not trust the file.
_NAME: Final = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*")
_REST: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|$)")
_SKIPPED: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)+|[ \t]*(?:#[^\n]*)?$")
_COMMENT: Final = re.compile(r"(?:^|(?<=[ \t]))#")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE: Final = re.compile(r"'([^']*)'")
_REFERENCE: Final = re.compile(r"\\\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_DOLLAR: Final = re.compile(r"\\\$")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\n": ""}


def read(path: str, known: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file; `${NAME}` may name a variable of `known` or an earlier one."""
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8-sig")
    except FileRefused as error:
        raise _refused(path, f"it {error.words}") from None
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _refused(path, f"it is not UTF-8 at byte {error.start}") from None
    try:
        return parse(text, known)
    except ValueError as error:
        raise _refused(path, str(error)) from None


def parse(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """Parse the text of an environment file; raises ValueError with the line that is wrong."""
    text = text.replace("\r\n", "\n")
    found: dict[str, str] = {}
    before = ChainMap(found, dict(known))
    at, line, counted, size = 0, 1, 0, 0
    while at < len(text):
        skipped = _SKIPPED.match(text, at)
        if skipped is not None and skipped.end() > at:
            at = skipped.end()
            continue
        line, counted = line + text.count("\n", counted, at), at
        name = _NAME.match(text, at)
        if name is None:
            raise ValueError(f"line {line} is not of the form NAME=value: {_line(text, at)!r}")
        value, at = _value(text, name.end(), line, before)
        if "\0" in value:
            raise ValueError(f"line {line}: the value of {name.group(1)} contains a NUL")
        size += len(value)
        if size > _MOST_VALUE_BYTES:
            raise ValueError(
                f"line {line}: the values so far are longer than {_MOST_VALUE_BYTES} bytes"
            )
        found[name.group(1)] = value
    return found


def _value(text: str, at: int, line: int, known: Mapping[str, str]) -> tuple[str, int]:
    """The value that begins at `at`, and where the next line begins."""
    quote = text[at : at + 1]
    if quote not in ("'", '"'):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        comment = _COMMENT.search(text[at:end])
        plain = text[at : at + comment.start() if comment else end].rstrip()
        return _expanded(plain, known, line), end + 1
    quoted = (_DOUBLE if quote == '"' else _SINGLE).match(text, at)
    if quoted is None:
        raise ValueError(f"line {line}: the quote {quote} is never closed")
    rest = _REST.match(text, quoted.end())
    if rest is None:
        raise ValueError(f"line {line}: there is text behind the closing {quote}")
    value = quoted.group(1)
    if quote == '"':
        value = _unescaped(value, known, line)
    return value, rest.end()


def _unescaped(text: str, known: Mapping[str, str], line: int) -> str:
    # Escapes count in the file's own text, not in the value of a reference.
    return _put_together(text, known, line, lambda part: _ESCAPE.sub(_escaped, part))


def _escaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])


def _expanded(text: str, known: Mapping[str, str], line: int) -> str:
    return _put_together(text, known, line, lambda part: part)


def _put_together(
    text: str, known: Mapping[str, str], line: int, plain: Callable[[str], str]
) -> str:
    parts: list[str] = []
    at = size = 0
    # No reference can end behind the last bracket; to look for its end at each `${` there is slow.
    last = text.rfind("}") + 1
    for found in chain(_REFERENCE.finditer(text, 0, last), _DOLLAR.finditer(text, last)):
        parts += [plain(text[at : found.start()]), _resolved(found, known)]
        at = found.end()
        size += len(parts[-1])
        if size > _MOST_VALUE_BYTES:
            raise ValueError(f"line {line}: the value is longer than {_MOST_VALUE_BYTES} bytes")
    return "".join([*parts, plain(text[at:])])


def _resolved(found: re.Match[str], known: Mapping[str, str]) -> str:
    if found[0] == "\\$":
        return "$"
    name, default = found.groups()
    return known.get(name) or default or ""


def _line(text: str, at: int) -> str:
    # The value is left out: it may be a secret.
    return text[at:].split("\n", 1)[0].split("=", 1)[0][:80]


def _refused(path: str, reason: str) -> RelayError:
    return RelayError(
        Code.INVALID_REQUEST,
        f"The env_file {path}: {reason}",
        "Correct the file (one NAME=value a line), or send the variables in env.",
        errors=[{"field": "env_file", "message": reason, "value": path}],
    )
