"""The probe's side of `protocol/wire/probe_messages.py` and the modules beside it, held against it
by its sources.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from debug_relay.protocol.wire import breakpoint_requests, live_answers, probe_events
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as messages
from tests.meta.documents import ROOT

PROBE = ROOT / "worker" / "probe"
# What does a request that is registered by an expression other than a function of the same module.
ELSEWHERE = {
    "leave": ("lifecycle/attached.py", "leave_on_request"),
    "outdated": ("breakpoints/outdated_sources.py", "outdated"),
    "running": None,
    "streams": ("children/child_streams.py", "move"),
}
# What answers each question in the stopped thread, beside `work`, which runs it.
ANSWERED_BY = {
    "assign": {"assign"},
    "complete": {"complete"},
    "evaluate": {"answer", "shown"},
    "evaluate_aside": {"answer", "evaluate"},
    "exception": {"report"},
    "page": {"page", "ask_aside"},
    "report": {"again", "send_report"},
    "returned": {"returned", "shown"},
    "sizes": {"sizes"},
}
# The dicts inside answers: the functions that build them, and keys that no literal there has.
PARTS: dict[type[Struct], tuple[str, set[str], set[str]]] = {
    answers.Failure: ("inspection/evaluation.py", {"described"}, set()),
    answers.Refusal: ("inspection/evaluation.py", {"syntax_problem"}, set()),
    answers.Variable: (
        "values/rendering.py",
        {"_row", "sized", "extent"},
        {"reference", "hint", "way"},
    ),
    answers.Watched: ("inspection/stop_report.py", {"watched", "watched_all"}, set()),
    answers.ThreadReport: ("inspection/stop_report.py", {"made", "of_frame", "looked_at"}, set()),
    answers.ChainedException: ("inspection/exception_details.py", {"one"}, {"relation"}),
    live_answers.TaskRow: ("inspection/modules_and_tasks.py", {"task_row", "look"}, set()),
    messages.LiveStack: ("inspection/threads.py", {"live"}, set()),
    live_answers.LiveFrame: ("inspection/live_threads.py", {"frame_row"}, set()),
    live_answers.LookRow: ("inspection/live_threads.py", {"add_thread", "stack_row"}, set()),
    live_answers.WaitRow: ("inspection/live_threads.py", {"wait_row"}, set()),
    live_answers.Holder: ("inspection/live_threads.py", {"holder_row"}, set()),
}
# What is said of a value by plain DAP alone.
NOT_SENT = {"uncounted"}
# Events that carry what is given to `emit` in a variable.
IN_VARIABLES = {"relayAnswer", "relayStop", "relayFunction", "relayLog", "relayLeft"}


def kinds() -> dict[str, type[messages.Request[Any]]]:
    """Each request by the name that it is sent by."""
    pending: list[type] = [messages.Request]
    found: dict[str, type[messages.Request[Any]]] = {}
    while pending:
        for kind in pending.pop().__subclasses__():
            pending.append(kind)
            if kind is not messages.Question:
                found[str(kind.__struct_config__.tag)] = kind
    return found


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(PROBE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in PROBE.rglob("*.py")
    }


@cache
def registered() -> frozenset[tuple[str, str, str | None, bool]]:
    """(request, file, function, whether it is a question) of all that the probe answers."""
    return frozenset(_registered())


def _registered() -> Iterator[tuple[str, str, str | None, bool]]:
    for file, tree in trees().items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(attr="commands" | "questions" as table), attr="update"
                    ),
                    keywords=named,
                ) if named:
                    for one in named:
                        function = getattr(one.value, "attr", getattr(one.value, "id", None))
                        yield str(one.arg), file, function, table == "questions"
                case ast.Assign(
                    targets=[
                        ast.Subscript(
                            value=ast.Attribute(attr="commands"), slice=ast.Constant(value=str(do))
                        )
                    ]
                ) if file != "engine/step_unwinding.py":
                    yield do, file, getattr(node.value, "attr", None), False


def parameters(tree: ast.Module, function: str) -> tuple[dict[str, bool], bool]:
    """name → whether it may be left out; and whether more are taken."""
    found, *others = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    assert {ast.dump(one.args) for one in others} <= {ast.dump(found.args)}
    names = [one.arg for one in found.args.args if one.arg != "self"]
    optional = len(found.args.defaults)
    required = names[: len(names) - optional] if optional else names
    return {name: name not in required for name in names}, found.args.kwarg is not None


def test_the_probe_answers_each_request_and_no_other():
    assert {row[0] for row in registered()} == kinds().keys()


@pytest.mark.parametrize("do", sorted(kinds()))
def test_a_request_has_what_the_probe_takes(do: str):
    ((file, function, is_question),) = (row[1:] for row in registered() if row[0] == do)
    kind = kinds()[do]
    if do in ELSEWHERE:
        place = ELSEWHERE[do]
        if place is None:
            assert fields(kind) == ()
            return
        file, function = place
    assert function is not None
    taken, takes_more = parameters(trees()[file], function)
    sent = {one.name: one.default is not NODEFAULT or bool(one.default_factory is not NODEFAULT)
            for one in fields(kind)}  # fmt: skip
    if issubclass(kind, messages.Question):
        sent["id"] = False  # whoever asks gives it one
    assert is_question == (issubclass(kind, messages.Question) and kind is not messages.PageAside)
    if not takes_more:
        assert sent.keys() <= taken.keys()
    required = {name for name, may_be_left_out in taken.items() if not may_be_left_out}
    always = {name for name, may_be_left_out in sent.items() if not may_be_left_out}
    assert required <= always


def built(file: str, functions: set[str]) -> set[str]:
    """The keys of the dicts that these functions build, but not of dicts inside these."""
    found = set()
    inside = {
        id(value)
        for node in ast.walk(trees()[file])
        if isinstance(node, ast.Dict)
        for value in node.values
    }
    for node in ast.walk(trees()[file]):
        if not isinstance(node, ast.FunctionDef) or node.name not in functions:
            continue
        for inner in ast.walk(node):
            match inner:
                case ast.Dict(keys=keys) if id(inner) not in inside:
                    found |= {one.value for one in keys if isinstance(one, ast.Constant)}
                case ast.Call(func=ast.Name(id="dict"), keywords=named):
                    found |= {one.arg for one in named if one.arg}
                case ast.Assign(targets=targets):
                    found |= {
                        one.slice.value
                        for target in targets
                        for one in getattr(target, "elts", [target])
                        if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant)
                    }
                case ast.Call(func=ast.Attribute(attr="update"), keywords=named):
                    found |= {one.arg for one in named if one.arg}
    return {str(key) for key in found}


@pytest.mark.parametrize("do", sorted(ANSWERED_BY))
def test_an_answer_has_the_keys_that_its_type_has(do: str):
    ((file, _, _),) = (row[1:] for row in registered() if row[0] == do)
    kind = kinds()[do]
    assert issubclass(kind, messages.Question)
    known = {one.name for one in fields(messages.answer_to(kind))}
    every = {one.name for one in fields(answers.Answer)}
    assert built("inspection/evaluation.py", {"work"}) <= every
    assert built(file, ANSWERED_BY[do]) | every == known


def test_each_question_is_among_them():
    asked = {do for do, kind in kinds().items() if issubclass(kind, messages.Question)}
    assert asked == ANSWERED_BY.keys() | {"page_aside"}


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_the_parts_of_an_answer_have_the_keys_of_their_types(kind: type[Struct]):
    file, functions, elsewhere = PARTS[kind]
    known = {one.name for one in fields(kind)} - NOT_SENT
    assert built(file, functions) | elsewhere == known


def emitted() -> Iterator[tuple[str, set[str] | None]]:
    """Events in the probe's sources, with the keys of their bodies where these stand there."""
    for tree in trees().values():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="emit"), args=[event, body, *_]):
                    keys = None
                    if isinstance(body, ast.Dict) and None not in body.keys:
                        keys = {one.value for one in body.keys if isinstance(one, ast.Constant)}
                    for name in ast.walk(event):
                        if isinstance(name, ast.Constant) and str(name.value).startswith("relay"):
                            yield str(name.value), keys


def test_the_probe_tells_each_event_and_no_other():
    assert {name for name, _ in emitted()} == probe_events.EVENTS.keys()


def test_events_have_the_fields_that_the_probe_gives_them():
    seen = set()
    for name, keys in emitted():
        kind = probe_events.EVENTS[name]
        if keys is None:
            assert name in IN_VARIABLES
            continue
        assert isinstance(kind, type)
        assert issubclass(kind, Struct)
        required = {one.name for one in fields(kind) if one.required}
        assert required <= keys <= {one.name for one in fields(kind)}, name
        seen.add(name)
    assert seen | IN_VARIABLES == probe_events.EVENTS.keys()


def test_what_has_a_default_is_not_sent():
    sent = messages.arguments_of(messages.Interrupt(drop=3))
    assert sent == {"do": "interrupt", "drop": 3}
    lines = {"/a.py": {7: [0]}}
    trace = messages.Trace(ring="r", rows=1, pause=False, spots=[], lines=lines)
    assert messages.arguments_of(trace)["lines"] == {"/a.py": {"7": [0]}}


def test_answers_have_types():
    reply = msgspec.json.decode(
        b'{"result": {"bp_1": 4}}', type=messages.reply_to(breakpoint_requests.Hits)
    )
    assert reply.result == {"bp_1": 4}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"result": [1]}', type=messages.reply_to(breakpoint_requests.Hits))
