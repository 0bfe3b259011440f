"""From what a caller sent to a Struct, with every wrong field named.

The quick way is one `msgspec.convert`. Only when that fails is the value walked field by field,
so that the answer lists all that is wrong and not just the first.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.fields import ENV_NAME, NO_NUL, Params

_P = TypeVar("_P", bound=Params)
_WHERE: Final = re.compile(r" - at `\$?(.*)`$")
_MISSING: Final = "required"
_PLAINER: Final = {
    f"matching regex {pattern!r}": words
    for pattern, words in ((NO_NUL, "without NUL"), (ENV_NAME, "without NUL and =, not empty"))
}
_INTEGER: Final = re.compile(r"-?[0-9]{1,400}")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][-+]?[0-9]{1,3})?")
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Problem(msgspec.Struct):
    """One wrong field."""

    field: str
    message: str
    value: Any = None


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
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(text, str(error)) from None
    if not isinstance(value, dict):
        raise RelayError(
            Code.INVALID_REQUEST,
            f"The body is a JSON {_kind(value)}, not an object",
            'Send an object, such as {"name": "value"}.',
            errors=[Problem("", "must be an object", value)],
        )
    return value


def _malformed(text: str, reason: str) -> RelayError:
    # msgspec tells the byte; a person needs line and column.
    found = re.search(r"\(byte (\d+)\)", reason)
    if found is None and "truncated" not in reason:
        return _unreadable(reason)
    at = int(found.group(1)) if found else len(text.encode())
    at -= "trailing characters" in reason  # here it names the byte behind the first of them
    before = text.encode()[:at].decode("utf-8", "ignore")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    reason = re.sub(r"\s*\(byte \d+\)", "", reason.removeprefix("JSON is malformed: "))
    return RelayError(
        Code.INVALID_REQUEST,
        f"The body is not JSON: {reason} at line {line}, column {column}",
        "Correct the JSON; names and texts stand in double quotes.",
        line=line,
        column=column,
        errors=[Problem("", f"{reason} at line {line}, column {column}")],
    )


def _unreadable(reason: str) -> RelayError:
    """Too deep, or a number that is too large: the parser does not tell where."""
    reason = reason[:1].lower() + reason.partition(" - at ")[0][1:]
    return RelayError(
        Code.INVALID_REQUEST,
        f"The body is JSON beyond what can be read: {reason}",
        "Send numbers that fit a double, and fewer levels of brackets.",
        errors=[Problem("", reason)],
    )


def convert(
    params: type[_P],
    path: Mapping[str, str],
    query: Mapping[str, str],
    body: Mapping[str, Any],
) -> _P:
    """One Struct out of path, query and body together."""
    loose = _loose(params, {**query, **path})
    try:
        return msgspec.convert({**body, **loose}, params, strict=True)
    except msgspec.ValidationError:
        pass
    wrong_parameters = _problems(params, loose, "", whole=False)
    wrong_fields = _problems(params, {**body, **loose}, "", whole=True)
    in_parameters = {problem.field for problem in wrong_parameters}
    fields = [problem for problem in wrong_fields if problem.field not in in_parameters]
    raise _refusal(wrong_parameters, fields, from_query=not body)


def _refusal(parameters: list[Problem], fields: list[Problem], from_query: bool) -> RelayError:
    problems = parameters + fields
    what = "; ".join(f"{problem.field or 'body'}: {problem.message}" for problem in problems[:3])
    more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
    if parameters and not fields:
        return RelayError(
            Code.INVALID_PARAMETER, f"Parameters do not fit: {what}{more}", errors=problems
        )
    missing = all(problem.message == _MISSING for problem in problems)
    if missing and from_query and not parameters:
        return RelayError(Code.MISSING_PARAMETER, f"Missing: {what}{more}", errors=problems)
    return RelayError(
        Code.INVALID_REQUEST, f"Request validation failed: {what}{more}", errors=problems
    )


def _loose(params: type[Params], texts: Mapping[str, str]) -> dict[str, Any]:
    """Path and query values are text: read them as the field's type says, or leave them."""
    if not texts:
        return {}
    hints = _hints(params)
    return {name: _read(text, hints.get(name)) for name, text in texts.items()}


def _read(text: str, hint: Any) -> Any:
    kinds = _plain_types(hint)
    if bool in kinds and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    # As JSON writes numbers: int() would take 1_0 and digits of other scripts, float() nan as well.
    if int in kinds and str not in kinds and _INTEGER.fullmatch(text):
        return int(text)
    if float in kinds and str not in kinds and _DECIMAL.fullmatch(text):
        return float(text)
    return text


def _plain_types(hint: Any) -> set[Any]:
    """The simple types inside `Annotated[int, …] | None` and the like."""
    if hint is None:
        return set()
    if get_origin(hint) is not None:
        found: set[Any] = set()
        for part in get_args(hint):
            found |= _plain_types(part)
        return found
    return {hint} if isinstance(hint, type) else set()


@functools.cache
def _hints(params: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(params, include_extras=True)


def _problems(kind: Any, value: Any, at: str, whole: bool) -> list[Problem]:
    """All that is wrong with `value` as a `kind`; `whole` also asks for required fields."""
    struct = _struct_of(kind)
    if struct is not None and isinstance(value, Mapping):
        return _struct_problems(struct, value, at, whole)
    parts: list[tuple[str, Any, Any]] = []
    if isinstance(value, list) and (element := _inside(kind, list)) is not None:
        parts = [(f"{at}[{index}]", element, item) for index, item in enumerate(value)]
    elif isinstance(value, Mapping) and (element := _inside(kind, dict)) is not None:
        names = _inside(kind, dict, 0)
        parts = [(f"{at}.{key}", names, key) for key in value]
        parts += [(f"{at}.{key}", element, item) for key, item in value.items()]
    found = [
        problem for where, part, item in parts for problem in _problems(part, item, where, True)
    ]
    if found:
        return found
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        return [_problem(str(error), at, value)]
    return []


def _struct_problems(
    struct: type[msgspec.Struct], value: Mapping[str, Any], at: str, whole: bool
) -> list[Problem]:
    hints = _hints(struct)
    prefix = f"{at}." if at else ""
    problems = []
    for field in msgspec.structs.fields(struct):
        if field.name in value:
            problems += _problems(hints[field.name], value[field.name], prefix + field.name, True)
        elif whole and field.required:
            problems.append(Problem(prefix + field.name, _MISSING))
    known = [field.name for field in msgspec.structs.fields(struct)]
    for name in value:
        if name not in known:
            problems.append(Problem(prefix + name, _unknown(name, known), value[name]))
    return problems


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return "unknown field; known are " + ", ".join(sorted(known)[:30])


def _problem(text: str, at: str, value: Any) -> Problem:
    where = _WHERE.search(text)
    if where:
        text = text[: where.start()]
        at += where.group(1)
    for regex, words in _PLAINER.items():
        text = text.replace(regex, words)
    # Whatever was sent is shown, but not all of a large thing.
    shown = value if len(repr(value)) <= 200 else repr(value)[:200] + "…"
    return Problem(at, text[:1].lower() + text[1:], shown)


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:
    collection = _inside(kind, list) is not None or _inside(kind, dict) is not None
    for plain in () if collection else _plain_types(kind):
        if issubclass(plain, msgspec.Struct):
            return plain  # type: ignore[no-any-return]
    return None


def _inside(kind: Any, collection: type, argument: int = -1) -> Any:
    """`X` of `list[X]` or of `dict[str, X]`, through Annotated and unions."""
    origin = get_origin(kind)
    if origin is collection:
        return get_args(kind)[argument]
    if origin in (list, dict):
        return None
    if origin is not None:
        for part in get_args(kind):
            inside = _inside(part, collection, argument)
            if inside is not None:
                return inside
    return None


def _kind(value: Any) -> str:
    names = {list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
