"""Turns what a caller sent into a Struct, or lists every invalid field.

The fast path is one `msgspec.convert`. Only if it fails, we check field by field, so that the
answer lists all mistakes and not just the first.
"""

from __future__ import annotations

import difflib
import enum
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.blueprint import fields_of
from debug_relay.protocol.models.fields import (
    ENV_NAME,
    LABEL_FILTER,
    LABEL_KEY,
    NAME,
    NO_NUL,
    WATCH_ID,
    Params,
)
from debug_relay.protocol.refusals import MISSING, MOST_PROBLEMS, Problem
from debug_relay.protocol.validation import cross_field_rules
from debug_relay.protocol.wire.envelope import encode_json

_P = TypeVar("_P", bound=Params)
_WHERE: Final = re.compile(r" - at `\$?(.*)`$")
_PLAINER: Final = {
    f"matching regex {pattern!r}": words
    for pattern, words in (
        (NO_NUL, "without NUL"),
        (ENV_NAME, "without NUL and =, not empty"),
        (LABEL_KEY, "without =, not empty"),
        (LABEL_FILTER, "of the form key=value"),
        (WATCH_ID, "such as watch_1"),
        (NAME, "of at most 64 letters, digits, dots, dashes, underscores, a letter or digit first"),
    )
}
# Unknown fields for which a similar name is looked for: comparing names is slow.
_MOST_COMPARED: Final = 20
# A longer unknown name is not a typing mistake and is not compared.
_COMPARED_CHARACTERS: Final = 100
_INTEGER: Final = re.compile(r"-?[0-9]{1,400}")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][-+]?[0-9]{1,3})?")
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Examined(Struct, Generic[_P]):
    """The result of validation: the Params, or everything that is wrong."""

    params: _P | None
    parameters: list[Problem]  # in path and query
    fields: list[Problem]  # in the body
    advice: str | None = None
    nothing_sent: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the lists contain every problem."""
        return len(self.parameters) + len(self.fields) <= MOST_PROBLEMS

    def refusal(self, *, by_query: bool = False) -> RelayError:
        """The error for these problems. `by_query`: the operation takes its fields from the query,
        as `GET` does.
        """
        problems = (self.parameters + self.fields)[:MOST_PROBLEMS]
        what = "; ".join(f"{one.field or 'body'}: {one.message}" for one in problems[:3])
        if len(problems) > 3:
            more = f"{len(problems) - 3} more"
            what += f" (and {more})" if self.is_whole else f" (and more than {more})"
        in_query = not self.fields or (by_query and self.nothing_sent)
        names = ", ".join(dict.fromkeys(one.field or "the body" for one in problems[:3]))
        if in_query and all(one.message == MISSING for one in problems):
            code, text, do = Code.MISSING_PARAMETER, f"Missing: {what}", f"Add {names}."
        elif in_query:
            code, text = Code.INVALID_PARAMETER, f"Invalid parameters: {what}"
            do = f"Correct {names}."
        else:
            code, text = Code.INVALID_REQUEST, f"Request validation failed: {what}"
            do = f"Correct {names}."
        return RelayError(code, text, self.advice or do, errors=problems)


def convert(
    params: type[_P],
    path: Mapping[str, str],
    query: Mapping[str, str],
    body: Mapping[str, Any],
    root: cross_field_rules.Root = UNSET,
) -> _P:
    """One Struct from path, query and body together."""
    examined = examine(params, path, query, body, root)
    if examined.params is None:
        raise examined.refusal()
    return examined.params


def examine(
    params: type[_P],
    path: Mapping[str, str],
    query: Mapping[str, str],
    body: Mapping[str, Any],
    root: cross_field_rules.Root = UNSET,
) -> Examined[_P]:
    """Like `convert`, for callers that add problems of their own."""
    of_path, of_query = _parse_texts(params, path), _parse_texts(params, query)
    loose = {**of_query, **of_path}
    sent = {**body, **loose}
    odd_parameters = _clashes(of_path, "path", of_query)
    odd_fields = _clashes(of_path, "path", body) + _clashes(of_query, "query", body)
    found_violations = cross_field_rules.violations(params, sent, root)
    if not odd_parameters and not odd_fields and not found_violations:
        try:
            found = msgspec.convert(sent, params, strict=True)
            return Examined(found, [], [])
        except msgspec.ValidationError:
            pass  # each wrong field is found below
    parameters = odd_parameters + _capped(_problems(params, loose, "", whole=False))
    shapes = _capped(_problems(params, sent, "", whole=True))
    reported = {place for one in shapes for place in _enclosing(one.field)}
    fitting = [one.problem for one in found_violations if one.problem.field not in reported]
    in_parameters = {one.field for one in parameters}
    parameters += [one for one in fitting if one.field in loose]
    fields = odd_fields + [one for one in shapes if one.field not in in_parameters]
    fields = _capped(fields + [one for one in fitting if one.field not in loose])
    advice = (
        found_violations[0].advice if fitting and len(fitting) == len(parameters + fields) else None
    )
    return Examined(None, parameters, fields, advice, nothing_sent=not body)


def _capped(problems: Iterable[Problem]) -> list[Problem]:
    """At most as many as are reported, and one more if there are more."""
    return list(itertools.islice(problems, MOST_PROBLEMS + 1))


def _enclosing(field: str) -> Iterator[str]:
    """The field and everything that contains it: for `env.A` also `env`."""
    yield field
    for end in re.finditer(r"[.\[]", field):
        yield field[: end.start()]


def _clashes(strong: Mapping[str, Any], place: str, weak: Mapping[str, Any]) -> list[Problem]:
    """Fields that two places give with different values: neither may win silently."""
    return [
        Problem(name, f"the {place} says {strong[name]!r}", weak[name])
        for name in strong
        if weak.get(name) is not None and encode_json(weak[name]) != encode_json(strong[name])
    ]


def _parse_texts(params: type[Params], texts: Mapping[str, str]) -> dict[str, Any]:
    """Path and query values are text: parsed as the field's type says, or left as text."""
    if not texts:
        return {}
    kinds = _kinds(params)
    return {name: _read(text, kinds.get(name, frozenset())) for name, text in texts.items()}


def _read(text: str, kinds: Set[Any]) -> Any:
    if bool in kinds and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    # Numbers as JSON writes them: int() would accept 1_0 and digits of other scripts, and float()
    # nan.
    if int in kinds and str not in kinds and _INTEGER.fullmatch(text):
        return int(text)
    if float in kinds and str not in kinds and _DECIMAL.fullmatch(text):
        return float(text)
    if int in kinds and str not in kinds and _DECIMAL.fullmatch(text):
        value = float(text)
        return int(value) if value.is_integer() else value
    return text


def _plain_types(hint: Any) -> set[Any]:
    """The simple types inside `Annotated[int, …] | None` and the like."""
    if get_origin(hint) is not None:
        found: set[Any] = set()
        for part in get_args(hint):
            found |= _plain_types(part)
        return found
    return {hint} if isinstance(hint, type) else set()


@functools.cache
def _kinds(params: type[msgspec.Struct]) -> dict[str, Set[Any]]:
    return {name: _plain_types(hint) for name, hint in _hints(params).items()}


@functools.cache
def _hints(params: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(params, include_extras=True)


def _problems(kind: Any, value: Any, at: str, whole: bool) -> Iterator[Problem]:
    """Everything that is wrong with `value` as a `kind`; `whole` also requires required fields."""
    text = ""
    if whole:
        try:
            # The whole value at once: if it is valid, nothing inside has to be checked.
            msgspec.convert(value, kind, strict=True)
            return
        except msgspec.ValidationError as error:
            text = str(error)
    struct = _struct_of(kind)
    if struct is not None and isinstance(value, Mapping):
        yield from _struct_problems(struct, value, at, whole)
        return
    is_told = False
    # A message without a place is about the collection itself, such as its length.
    for where, part, item in _parts(kind, value, at) if _WHERE.search(text) else ():
        for problem in _problems(part, item, where, True):
            is_told = True
            yield problem
    if not is_told:
        yield _problem(text, at, value, kind)


def _parts(kind: Any, value: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    """For each part of a collection: its path, its expected type, and its value."""
    if isinstance(value, list) and (element := _inside(kind, list)) is not None:
        yield from ((f"{at}[{index}]", element, item) for index, item in enumerate(value))
    elif isinstance(value, Mapping) and (element := _inside(kind, dict)) is not None:
        names = _inside(kind, dict, 0)
        for key, item in value.items():
            yield f"{at}.{key}", names, key
            yield f"{at}.{key}", element, item


def _struct_problems(
    struct: type[msgspec.Struct], value: Mapping[str, Any], at: str, whole: bool
) -> Iterator[Problem]:
    hints = _hints(struct)
    prefix = f"{at}." if at else ""
    for field in fields_of(struct):
        if field.name in value:
            yield from _problems(hints[field.name], value[field.name], prefix + field.name, True)
        elif whole and field.required:
            yield Problem(prefix + field.name, MISSING)
    unknown = [name for name in value if name not in hints]
    for count, name in enumerate(unknown):
        is_compared = count < _MOST_COMPARED and len(name) <= _COMPARED_CHARACTERS
        message = _unknown(name, list(hints)) if is_compared else "unknown field"
        yield Problem(prefix + name, message, value[name])


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    if not known:
        return "unknown field; this call has none"
    return "unknown field; known are " + ", ".join(sorted(known)[:30])


def _problem(text: str, at: str, value: Any, kind: Any) -> Problem:
    where = _WHERE.search(text)
    if where:
        text = text[: where.start()]
        at += where.group(1)
    for regex, words in _PLAINER.items():
        text = text.replace(regex, words)
    # Only for the value itself: a nested value has another type.
    if text.startswith("Invalid enum value") and where is None:
        text += f"; accepted: {', '.join(_choices(kind))}"
    return Problem(at, text[:1].lower() + text[1:], value)


def _choices(kind: Any) -> Iterator[str]:
    """The accepted values of a literal or an enumeration in this type."""
    if get_origin(kind) is Literal:
        yield from map(str, get_args(kind))
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        yield from (str(member.value) for member in kind)
    elif kind is bool:  # bool in a union with one of the others
        yield from ("true", "false")
    else:
        for part in get_args(kind):
            yield from _choices(part)


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
