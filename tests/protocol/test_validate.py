"""Every wrong field is named with its path, and texts are read as the field's type says."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, UnsetType

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import (
    breakpoints,
    creation,
    execution,
    inspection,
    program,
    sessions,
)
from debug_relay.protocol.models import output_events as output
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.refusals import MOST_PROBLEMS
from debug_relay.protocol.validation.json_body import DEEPEST, MOST_VALUES, parse_json
from debug_relay.protocol.validation.params import convert, examine
from debug_relay.protocol.wire.envelope import encode_json
from tests.kit.cases import in_one_test


class Inner(Params, kw_only=True):
    """An object in a list."""

    line: Annotated[int, Meta(ge=1)]
    name: str | None = None


class Everything(Params, kw_only=True):
    """One field of every kind."""

    whole: Annotated[int, Meta(ge=0, le=1000)] = 1
    maybe: int | None = None
    flag: bool = False
    maybe_flag: bool | None = None
    ratio: Annotated[float, Meta(ge=0, le=300)] = 0
    text: str = ""
    either: bool | Literal["auto"] = False
    choice: Literal["red", "green"] = "red"
    inner: Inner | None = None
    items: list[Inner] = []
    maybe_items: list[Inner] | None = None
    words: dict[str, str] = {}
    lists: dict[str, list[int]] = {}
    change: str | None | UnsetType = UNSET


def refusal(
    params: type[Params],
    body: dict[str, Any] | None = None,
    query: dict[str, str] | None = None,
    path: dict[str, str] | None = None,
) -> RelayError:
    with pytest.raises(RelayError) as caught:
        convert(params, path or {}, query or {}, body or {})
    return caught.value


def wrong(error: RelayError) -> dict[str, str]:
    return {problem.field: problem.message for problem in error.details["errors"]}


# -- what fits


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("whole", "5", 5),
        ("maybe", "-7", -7),
        ("flag", "true", True),
        ("flag", "True", True),
        ("flag", "1", True),
        ("flag", "yes", True),
        ("flag", "false", False),
        ("flag", "0", False),
        ("maybe_flag", "no", False),
        ("ratio", "1.5", 1.5),
        ("ratio", "2", 2.0),
        ("text", "5", "5"),
        ("text", "true", "true"),
        ("either", "true", True),
        ("either", "auto", "auto"),
        ("choice", "green", "green"),
        ("change", "12", "12"),
    ],
)
def test_query_text_is_read_as_the_field_says(field: str, text: str, value: object):
    got = getattr(convert(Everything, {}, {field: text}, {}), field)
    assert (got, type(got)) == (value, type(value))


def test_path_query_and_body_together():
    got = convert(
        breakpoints.PatchBreakpoint,
        {"session_id": "5", "breakpoint_id": "bp_1"},
        {"enabled": "false"},
        {"condition": None},
    )
    assert (got.session_id, got.breakpoint_id) == ("5", "bp_1")
    assert (got.enabled, got.condition, got.log_message) == (False, None, UNSET)


def test_nobody_can_replace_the_path():
    path = {"session_id": "a"}
    error = refusal(sessions.DeleteSession, {}, {"session_id": "b"}, path)
    assert error.code is Code.INVALID_PARAMETER
    assert wrong(error) == {"session_id": "the path says 'a'"}
    error = refusal(sessions.DeleteSession, {"session_id": 3}, {"session_id": "a"}, path)
    assert error.code is Code.INVALID_REQUEST
    got = convert(sessions.DeleteSession, path, {"session_id": "a"}, {"session_id": "a"})
    assert got.session_id == "a"


def test_query_and_body_may_say_the_same_only():
    path = {"session_id": "a"}
    error = refusal(execution.Continue, {"wait": 3}, {"wait": "5"}, path)
    assert wrong(error) == {"wait": "the query says 5.0"}
    assert convert(execution.Continue, path, {"thread_id": "3"}, {"thread_id": 3}).thread_id == 3


# -- what does not fit


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("whole", "five"),
        ("whole", "1.5"),
        ("whole", ""),
        ("whole", "9" * 5000),
        ("flag", "maybe"),
        ("ratio", "nan"),
        ("ratio", "inf"),
        ("ratio", "x"),
        ("choice", "blue"),
    ],
)
def test_a_wrong_query_value_is_a_wrong_parameter(field: str, text: str):
    error = refusal(Everything, query={field: text})
    assert error.code is Code.INVALID_PARAMETER
    assert list(wrong(error)) == [field]


def test_over_the_maximum_is_refused_with_the_maximum():
    error = refusal(output.GetOutput, query={"limit": "5000"}, path={"session_id": "s"})
    assert error.code is Code.INVALID_PARAMETER
    assert "1000" in wrong(error)["limit"]
    assert "limit" in error.message
    assert "1000" in error.message


def test_all_that_is_wrong_is_listed():
    error = refusal(
        Everything,
        {
            "whole": -1,
            "flag": "true",
            "ratio": "1",
            "choice": "blue",
            "inner": {"line": 0, "nam": "x"},
            "items": [{"line": 1}, {"line": "2"}, {}, 5],
            "maybe_items": [{"line": 0}],
            "words": {"good": "yes", "bad": 1, "worse": None},
            "lists": {"a": [1, "2"], "b": 3},
            "unknown": 1,
        },
    )
    assert error.code is Code.INVALID_REQUEST
    assert set(wrong(error)) == {
        "whole", "flag", "ratio", "choice", "inner.line", "inner.nam", "items[1].line",
        "items[2].line", "items[3]", "maybe_items[0].line", "words.bad", "words.worse",
        "lists.a[1]", "lists.b", "unknown",
    }  # fmt: skip
    assert wrong(error)["items[2].line"] == "required"
    values = {problem.field: problem.value for problem in error.details["errors"]}
    assert (values["items[3]"], values["words.bad"], values["lists.a[1]"]) == (5, 1, "2")


def test_the_message_names_three_and_counts_the_rest():
    error = refusal(Everything, {"whole": -1, "flag": 1, "ratio": "x", "choice": 1, "text": 2})
    assert "(and 2 more)" in error.message


def test_a_batch_of_breakpoints():
    error = refusal(
        breakpoints.SetBreakpoints,
        {"breakpoints": [{"line": 1}, {"line": 0}, {"file": 1, "lin": 2}, 5], "source": {"pat": 1}},
        path={"session_id": "s"},
    )
    assert set(wrong(error)) == {
        "breakpoints[0].source.path", "breakpoints[1].source.path", "breakpoints[1].line",
        "breakpoints[2].file", "breakpoints[2].lin", "breakpoints[2].line", "breakpoints[3]",
        "source.path", "source.pat",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "near"),
    [("limt", "limit"), ("categroy", "category"), ("Cursor", "cursor")],
)
def test_an_unknown_field_names_the_nearest(name: str, near: str):
    error = refusal(output.GetOutput, query={name: "1"}, path={"session_id": "s"})
    assert wrong(error) == {name: f"unknown field; did you mean {near}?"}


def test_a_field_near_to_none_lists_what_there_is():
    error = refusal(Inner, {"line": 1, "zzz": 1})
    assert wrong(error) == {"zzz": "unknown field; known are line, name"}


def test_wrong_parameters_come_with_wrong_fields():
    error = refusal(
        execution.Continue, {"thread_id": "x"}, query={"wait": "long"}, path={"session_id": "s"}
    )
    assert error.code is Code.INVALID_REQUEST
    assert set(wrong(error)) == {"wait", "thread_id"}


def test_what_is_missing_is_a_parameter_where_fields_come_by_the_query():
    path = {"session_id": "s", "variables_reference": "7"}
    for body, missing in (({}, {"name", "value"}), ({"name": "x"}, {"value"})):
        error = refusal(inspection.SetVariable, body, path=path)
        assert error.code is Code.INVALID_REQUEST
        assert wrong(error) == dict.fromkeys(missing, "required")

    def of_query(query: dict[str, str]) -> RelayError:
        examined = examine(inspection.Variables, {"session_id": "s"}, query, {})
        return examined.refusal(by_query=True)

    assert of_query({}).code is Code.MISSING_PARAMETER
    error = of_query({"start": "many"})
    assert error.code is Code.INVALID_PARAMETER
    assert wrong(error).keys() == {"start", "variables_reference"}


@pytest.mark.parametrize(
    ("kind", "body", "fields"),
    [
        (execution.Trace, {"step": {"files": [1]}, "at": [{"file": 1}]},
         {"step.files[0]", "at[0].file", "at[0].line"}),
        (execution.Trace, {"step": "lines"}, {"step"}),
        (program.Launch, {"args": ["a", 1, 2], "snapshot": {"frames": "x"}},
         {"args[1]", "args[2]", "snapshot.frames", "script"}),
        (program.Launch, {"stop_on_exception": "maybe", "env": {"A": 1, "B": None}, "code": "1"},
         {"stop_on_exception", "env.A"}),
        (program.Attach, {"path_mappings": [{"local": "a"}, {"local": "a", "remote": 1}]},
         {"path_mappings[0].remote", "path_mappings[1].remote", "pid"}),
        (sessions.PatchSession, {"limits": {"memory_bytes": -1, "cpu": 1}, "labels": None},
         {"limits.memory_bytes", "limits.cpu", "labels"}),
        (breakpoints.PatchBreakpoint, {"enabled": None, "condition": 5}, {"enabled", "condition"}),
    ],
)  # fmt: skip
def test_unions_and_collections(kind: type[Params], body: dict, fields: set[str]):
    path = {"session_id": "s"}
    if kind is breakpoints.PatchBreakpoint:
        path["breakpoint_id"] = "bp_1"
    assert set(wrong(refusal(kind, body, path=path))) == fields


def test_a_large_value_is_not_sent_back_whole():
    error = refusal(Everything, {"whole": "x" * 100_000})
    (problem,) = error.details["errors"]
    assert len(problem.value) < 300


def test_refusals_can_be_sent():
    error = refusal(Everything, {"whole": {"a": [1]}, "unknown": {"b": None}})
    assert msgspec.json.decode(msgspec.json.encode(error.details))["errors"][0]["field"] == "whole"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 2000) | st.floats(-5, 500) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(
    body=st.dictionaries(
        st.sampled_from(Everything.__struct_fields__) | st.text(max_size=6), JSON, max_size=6
    )
)
def test_any_body_fits_or_names_what_is_wrong(body: dict):
    try:
        convert(Everything, {}, {}, body)
        return
    except RelayError as caught:
        error = caught
    assert error.code is Code.INVALID_REQUEST
    assert error.details["errors"]
    assert {problem.field.split("[")[0].split(".")[0] for problem in error.details["errors"]} <= {
        name.split("[")[0].split(".")[0] for name in body
    }


@in_one_test(OPERATIONS)
def test_every_operation_refuses_nonsense_helpfully(name: str):
    """Each field of each operation with a value that fits nowhere: all are named, none crashes."""
    params = OPERATIONS[name].params
    fields = [field for field in params.__struct_fields__ if field != "session_id"]
    path = {"session_id": "s"} if "session_id" in params.__struct_fields__ else {}
    body = {field: [[{"nonsense": 1}]] for field in fields} | {"no_such_field": 1}
    problems = wrong(refusal(params, body, path=path))
    assert "no_such_field" in problems
    named = {field.split("[")[0].split(".")[0] for field in problems}
    # JSON of any shape, at once or one level down
    free = {field for field, kind in get_type_hints(params).items() if kind in (Any, list[Any])}
    assert set(fields) - named <= free


# -- JSON


@pytest.mark.parametrize("body", [b"", b"  \n", b"{}"])
def test_nothing_is_an_empty_object(body: bytes):
    assert parse_json(body) == {}


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [
        (b"{,}", 1, 2),
        (b'{"a": x}', 1, 7),
        (b'{"a":\n  [1,}', 2, 6),
        ('{"é": x}'.encode(), 1, 7),
        (b'{\n\n"a": 1', 3, 7),
        (b"{'a': 1}", 1, 2),
        (b'{"a": 1}\n {', 2, 2),
    ],
)
def test_malformed_json_names_line_and_column(body: bytes, line: int, column: int):
    with pytest.raises(RelayError) as caught:
        parse_json(body)
    assert caught.value.code is Code.INVALID_REQUEST
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)
    assert f"line {line}, column {column}" in caught.value.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[]", "array"),
        (b'"x"', "string"),
        (b"5", "number"),
        (b"true", "boolean"),
        (b"null", "null"),
    ],
)
def test_a_body_is_an_object(body: bytes, kind: str):
    with pytest.raises(RelayError, match=f"JSON {kind}") as caught:
        parse_json(body)
    assert caught.value.code is Code.INVALID_REQUEST


def test_a_body_is_utf_8():
    with pytest.raises(RelayError, match="byte 6 is 0xff"):
        parse_json(b'{"a":"\xff"}')


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_a_body_may_not_be_endlessly_deep():
    assert parse_json(nested(DEEPEST))
    for depth in (DEEPEST + 1, 700, 900, 50_000):
        with pytest.raises(RelayError, match=f"more than {DEEPEST} levels"):
            parse_json(nested(depth))
    # Brackets and commas in texts are none.
    text = '[{,"\\\\' * MOST_VALUES
    assert parse_json(json.dumps({text: text, "b": '\\"['}).encode()) == {text: text, "b": '\\"['}


@pytest.mark.parametrize("item", [b"1", b"[]", b"{}", b'"x"', b'{"a":"b"}', b'["\\""]'])
def test_a_body_may_not_have_endlessly_many_values(item: bytes):
    def body(count: int) -> bytes:
        return b'{"a":[' + b",".join([item] * count) + b"]}"

    assert len(parse_json(body(MOST_VALUES // 10))["a"]) == MOST_VALUES // 10
    tracemalloc.start()
    with pytest.raises(RelayError, match=f"more than {MOST_VALUES} values"):
        parse_json(body(MOST_VALUES * 2))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 64 * 1024 * 1024, "it was read into objects first"


def test_a_name_that_is_given_twice_among_very_many():
    """Compared with each other they would take a minute, in which nobody else is answered."""
    others = b",".join(b'"k%d":1' % number for number in range(30_000))
    began = time.process_time()
    with pytest.raises(RelayError, match="gives a, a0 twice"):
        parse_json(b'{"a":1,"a0":1,"a0":2,' + others + b',"a":2}')
    assert time.process_time() - began < 5


def test_of_very_many_unknown_names_the_first_are_told():
    began = time.process_time()
    sent = {f"k{number}": 1 for number in range(100_000)}
    with pytest.raises(RelayError) as caught:
        convert(creation.CreateSession, {}, {}, sent)
    assert len(caught.value.details["errors"]) == MOST_PROBLEMS
    assert "(and more than 97 more)" in caught.value.message
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("params", "sent", "told"),
    [
        (breakpoints.SetBreakpoints, {"breakpoints": [{"function": "f"}] * 100_000}, 1),
        (breakpoints.SetBreakpoints, {"breakpoints": [{"function": 1}] * 100_000}, 1),
        (breakpoints.SetBreakpoints, {"breakpoints": [{"function": 1}] * 10_000}, MOST_PROBLEMS),
        (breakpoints.PutProfile, {"breakpoints": [{}] * 10_000}, MOST_PROBLEMS),
        (creation.CreateSession, {"labels": {f"{n}": "x" for n in range(100_000)}}, 1),
        (creation.CreateSession, {"mode": "launch", "code": "1", "args": ["x"] * 150_000 + [1]}, 1),
        (creation.CreateSession, {"labels": [["x" * 1000] * 1000] * 100}, 1),
        (creation.CreateSession, {f"{n}name"[:5] * 18: 1 for n in range(100_000)}, MOST_PROBLEMS),
    ],
)  # fmt: skip
def test_what_is_wrong_with_much_is_found_in_a_moment(
    params: type[Params], sent: dict[str, Any], told: int
):
    """On a quiet machine in a tenth of this."""
    path = {"session_id": "s"} if "session_id" in params.__struct_fields__ else {}
    path |= {"name": "n"} if params is breakpoints.PutProfile else {}
    began = time.process_time()
    with pytest.raises(RelayError) as caught:
        convert(params, path, {}, sent)
    errors = caught.value.details["errors"]
    assert time.process_time() - began < 2
    assert len(errors) == told
    assert len(encode_json(errors)) < told * 2500


@pytest.mark.parametrize("name", ["a\n", "a b", "../a", "", ".a"])
def test_what_names_a_file_is_nothing_but_a_name(name: str):
    with pytest.raises(RelayError):
        convert(breakpoints.Profile, {"name": name}, {}, {})


@given(body=st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_body_is_an_object_or_refused(body: bytes):
    try:
        value = parse_json(body)
    except RelayError as caught:
        error = caught
    else:
        assert isinstance(value, dict)
        return
    assert error.code is Code.INVALID_REQUEST
