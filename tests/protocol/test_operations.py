"""The table is sane: every front is derived from it, so what is wrong here is wrong everywhere."""

from __future__ import annotations

import re

import pytest

from debug_relay.protocol.errors import COMMON, COMMON_SESSION, ERRORS, Code
from debug_relay.protocol.models.breakpoints import SetBreakpoints
from debug_relay.protocol.models.fields import Params, Result, SessionParams
from debug_relay.protocol.operation_row import Operation, path_variables
from debug_relay.protocol.operations import END_SESSION, OPERATIONS, _table
from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.state import ANY
from debug_relay.protocol.wire.envelope import encode_json
from tests.kit.cases import in_one_test

ROWS = list(OPERATIONS.values())
every_row = in_one_test(ROWS)


@every_row
def test_names_and_paths_are_well_formed(row: Operation):
    assert OPERATIONS[row.name] is row
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", row.name)
    for path in row.paths:
        assert path == "/" or re.fullmatch(r"(/([a-z][a-z.-]*|\{[a-z_]+\}))+", path)


@every_row
def test_every_path_variable_is_a_parameter(row: Operation):
    for path in row.paths:
        names = path_variables(path)
        assert len(names) == len(set(names))
        assert set(names) <= set(row.params.__struct_fields__)


@every_row
def test_parameters_and_results_are_documented(row: Operation):
    assert issubclass(row.params, Params)
    assert issubclass(row.result, Result)
    assert (row.params.__doc__ or "").strip().endswith(".")
    assert not (row.params.__doc__ or "").startswith(row.params.__name__ + "(")


@every_row
def test_sessions_are_in_the_path_of_what_works_on_one(row: Operation):
    assert row.on_session == issubclass(row.params, SessionParams)
    assert row.on_session == ("{session_id}" in row.path)
    assert row.side == "supervisor" or row.on_session, "a worker is one session's"
    assert row.states == ANY or row.on_session


@every_row
def test_reading_is_safe_and_writing_is_not(row: Operation):
    writes = row.drives or row.scope == "sessions:write"
    assert row.safe == (row.verb == "GET" and not writes)
    assert row.scope in ("", *SCOPES)
    assert row.scope or row.name == "health"
    assert row.states
    assert row.status in (200, 201)


@every_row
def test_errors_are_in_the_catalogue(row: Operation):
    assert row.all_errors <= set(ERRORS)
    assert row.all_errors >= COMMON
    assert (row.all_errors >= COMMON_SESSION) == row.on_session


def test_no_two_rows_answer_the_same_request():
    """Not even with differently named variables."""
    seen: dict[tuple[str, str], str] = {}
    for row in ROWS:
        for path in row.paths:
            shape = (row.verb, re.sub(r"\{[^}]*\}", "{}", path))
            assert shape not in seen, f"{row.name} and {seen[shape]} answer {shape}"
            seen[shape] = row.name


def test_what_is_spoken_between_the_processes_only_is_no_row():
    assert END_SESSION not in OPERATIONS


def test_every_code_has_its_words():
    assert set(ERRORS) == set(Code)
    for code, row in ERRORS.items():
        assert 400 <= row.status <= 599, code
        assert row.meaning.endswith("."), code
        assert row.suggestion.endswith("."), code


class Undocumented(Params, kw_only=True):
    name: str


def row(name: str, path: str, params: type[Params]) -> Operation:
    return Operation(
        name=name, verb="GET", path=path, params=params, result=Result, group="x", scope="admin"
    )


def documented(*names: str) -> type[Params]:
    return type(
        "Documented", (Params,), {"__doc__": "Yes.", "__annotations__": dict.fromkeys(names, str)}
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("a", "/a", documented()), ("a", "/b", documented())], "two operations are called a"),
        ([("a", "/a", documented()), ("b", "/a", documented())], "two operations answer GET /a"),
        ([("a", "/a/{id}", documented("name"))], "which params lacks"),
        ([("a", "/a", documented("wait"))], "its deadline does not count"),
    ],
)
def test_rows_that_fight_are_refused(rows: list, words: str):
    with pytest.raises(ValueError, match=words):
        _table(tuple(row(*one) for one in rows))


def test_path_variables():
    assert path_variables("/a/{b}/c/{d}") == ["b", "d"]
    assert path_variables("/a") == []


def test_a_worker_gets_only_the_fields_that_were_given() -> None:
    """A worker of an earlier version refuses fields that it does not know."""
    for row in OPERATIONS.values():
        assert row.params.__struct_config__.omit_defaults, row.name
    sent = encode_json(SetBreakpoints(session_id="s", file="/a.py", line=3))
    assert sent == b'{"session_id":"s","file":"/a.py","line":3}'
