"""Rules for request fields that are valid one by one and wrong together.

`params.examine` calls it with the request as it was sent, and the OpenAPI document takes from
`body_schema` what JSON Schema can say of it. One rule per Params that needs one. A
rule must accept fields of any shape, because its findings are reported together with those about
wrong shapes. Rules that need a file or the program are checked where those are.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET, UnsetType

from debug_relay.protocol.errors import Code
from debug_relay.protocol.models.breakpoints import (
    MAX_BATCH,
    BreakpointSpec,
    ListBreakpoints,
    PutProfile,
    SetBreakpoints,
)
from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.execution import RunTo, Trace
from debug_relay.protocol.models.export_import import ImportSession
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.models.inspection import Variables
from debug_relay.protocol.models.program import Attach, Input, Launch
from debug_relay.protocol.models.run import Run
from debug_relay.protocol.models.sessions import PatchSession
from debug_relay.protocol.models.sources import GetSource
from debug_relay.protocol.refusals import MISSING, MOST_PROBLEMS, Problem
from debug_relay.protocol.version import API_PREFIX

# The session's project_root; UNSET if no session is known to which a path could be relative.
Root = str | None | UnsetType
Sent = Mapping[str, Any]


class Violation(NamedTuple):
    problem: Problem
    advice: str


Rule = Callable[[Sent, Root], Iterator[Violation]]

_PROGRAMS: Final = ("script", "module", "code")
_ROWS: Final = ("at", "step")
_TARGETS: Final = ("pid", "port", "listening_on", "match")
NOT_WITH_PORT: Final = ("identity", "wait_seconds", "redirect_output")
PLACES: Final = ("line", "text", "function")
NOT_WITH_WATCH: Final = (*PLACES, "file", "source", "hit_condition", "log_message")
NATIVE: Final = ("program", "wait_for_debugger")  # with an `adapter` for native programs
_LAUNCH: Final = (
    "adapter", *NATIVE, *_PROGRAMS, "args", "cwd", "env", "stop_on_exception", "python_args",
    "stdin_inputs", "pythonpath", "env_file", "console", "pty", "debug_subprocesses",
    "keep_children",
)  # fmt: skip
_ATTACH: Final = (
    *_TARGETS, "host", "stop_on_exception", "connect_timeout", "path_mappings", "identity",
    "wait_seconds", "redirect_output",
)  # fmt: skip
# The fields that describe a session's first program, by the mode that starts it.
OF_MODE: Final[Mapping[str, Sequence[str]]] = {"launch": _LAUNCH, "attach": _ATTACH}
ONE_BREAKPOINT: Final = frozenset(BreakpointSpec.__struct_encode_fields__)
_EXAMPLE: Final = 'Send {"source": {"path": "/absolute/file.py"}, "line": 12}.'
_LAUNCH_ADVICE: Final = 'Send {"script": "/path/to/script.py"} or {"module": "package.module"}.'
_ATTACH_ADVICE: Final = (
    'Send {"pid": N} for a program that runs, {"port": 5678} for one under debugpy --listen 5678.'
)
_TRACE_ADVICE: Final = (
    'Send {"at": [{"file": "/a.py", "line": 5, "capture": ["x"]}]}, or {"step": "function"}, or '
    '{"step": {"files": ["/a.py"]}}.'
)
_EXPORTED: Final = (
    "config", "program", "breakpoints", "exception_breakpoints", "watches", "missing_env",
)  # fmt: skip
_IMPORT_ADVICE: Final = (
    f"Send the data of GET {API_PREFIX}/sessions/SESSION_ID/export; for an empty session "
    f"POST {API_PREFIX}/sessions."
)
# The fields of a launch that mean something for Python alone.
OF_PYTHON: Final = (
    *_PROGRAMS, "python_path", "venv", "python_args", "pythonpath", "stop_on_entry",
    "stop_on_exception", "just_my_code", "debug_subprocesses",
)  # fmt: skip
# These are a session's own settings too: beside `mode` they are not those of the program.
OF_SESSION: Final = ("python_path", "venv", "stop_on_entry", "just_my_code")
_NATIVE_ADVICE: Final = (
    'Send {"adapter": "gdbserver", "program": "/path/to/executable", "args": ["…"]}.'
)
_MODE_ADVICE: Final = 'Send "mode": "launch" with script or module, or "mode": "attach" with port.'


# A body has exactly one of these fields, or at least one. The rules below and the OpenAPI document
# both read them here. A launch without an `adapter` is one of a Python program.
JUST_ONE: Final[Mapping[type[Params], Sequence[str]]] = {
    Attach: _TARGETS, Launch: _PROGRAMS, Run: _PROGRAMS, Trace: _ROWS,
}  # fmt: skip
AT_LEAST_ONE: Final[Mapping[type[Params], Sequence[str]]] = {
    ImportSession: _EXPORTED, Input: ("input", "base64", "eof"),
}  # fmt: skip
# Values that are as good as none.
NOTHING: Final[tuple[Any, ...]] = (None, [], {})
NOTHING_TO_WRITE: Final[tuple[Any, ...]] = (None, "", False)


def violations(params: type[Params], sent: Sent, root: Root) -> list[Violation]:
    """At most as many as are reported, and one more if there are more."""
    rule = _RULES.get(params)
    if rule is None:
        return []
    return list(itertools.islice(rule(sent, root), MOST_PROBLEMS + 1))


def is_absolute(path: str) -> bool:
    """Whether the path names one place whatever the working directory is."""
    return path.startswith(("/", "~/")) or path == "~"


def _given(sent: Sent, names: Sequence[str]) -> list[str]:
    return [name for name in names if sent.get(name) not in (*NOTHING, UNSET)]


def _just_one(sent: Sent, names: Sequence[str], advice: str) -> Iterator[Violation]:
    given = _given(sent, names)
    if len(given) != 1:
        message = f"give exactly one of {', '.join(names)}"
        for name in given or names[:1]:
            yield Violation(Problem(name, message, sent.get(name)), advice)


def _absolute(sent: Sent, name: str, message: str, advice: str) -> Iterator[Violation]:
    path = sent.get(name)
    if isinstance(path, str) and path and not is_absolute(path):
        yield Violation(Problem(name, message, path), advice)


# -- sessions


def _create(sent: Sent, root: Root) -> Iterator[Violation]:
    yield from _config(sent, root)
    mode = sent.get("mode")
    allowed = OF_MODE.get(mode, ()) if isinstance(mode, str) else ()
    reason = f"not allowed with mode {mode}" if mode else "needs mode launch or attach"
    first_program = dict.fromkeys((*_LAUNCH, *_ATTACH))
    for name in _given(sent, [name for name in first_program if name not in allowed]):
        yield Violation(Problem(name, reason, sent[name]), _MODE_ADVICE)
    if mode == "launch":
        yield from _launch(sent, sent.get("project_root"))
    elif mode == "attach":
        yield from _just_one(sent, JUST_ONE[Attach], _ATTACH_ADVICE)
    else:
        if sent.get("snapshot") not in (None, False, UNSET):
            yield Violation(Problem("snapshot", reason, sent["snapshot"]), _MODE_ADVICE)
    yield from _batch(sent, sent.get("project_root") or sent.get("cwd"))


def _config(sent: Sent, _: Root) -> Iterator[Violation]:
    yield from _absolute(
        sent,
        "project_root",
        "must be absolute",
        "Send an absolute path: the relay does not know your working directory.",
    )
    # Both are the same setting, in two units.
    both = ("timeout_minutes", "idle_timeout")
    if len(_given(sent, both)) == len(both):
        for name in both:
            yield Violation(Problem(name, "give one of the two", sent[name]), "Send one of them.")


def _imported(sent: Sent, root: Root) -> Iterator[Violation]:
    if not _given(sent, names := AT_LEAST_ONE[ImportSession]):
        message = f"there is nothing to import: give any of {', '.join(names)}"
        yield Violation(Problem("config", message), _IMPORT_ADVICE)
    config = sent.get("config")
    for wrong in _config(config, root) if isinstance(config, Mapping) else ():
        problem = wrong.problem
        yield Violation(
            Problem(f"config.{problem.field}", problem.message, problem.value), wrong.advice
        )
    yield from _kept(sent, root)


def _kept(sent: Sent, _: Root) -> Iterator[Violation]:
    """Breakpoints that are kept for later: any project may be that of a relative file."""
    yield from _batch(sent, "")


# -- pages by either name


def _page(sent: Sent, _: Root) -> Iterator[Violation]:
    for both in (("start", "offset"), ("count", "limit")):
        if len([name for name in both if name in sent]) == len(both):
            for name in both:
                yield Violation(
                    Problem(name, "give one of the two", sent[name]), "Send one of them."
                )


def _source(sent: Sent, _: Root) -> Iterator[Violation]:
    both = ("path", "frame_id")
    given = _given(sent, both)
    if not given:
        advice = "Add path=/absolute/file.py; while the program is paused, frame_id=0 does as well."
        yield Violation(Problem("path", MISSING), advice)
    for name in given if len(given) > 1 else ():
        yield Violation(Problem(name, "give one of the two", sent[name]), "Send one of them.")


# -- programs


def _launch(sent: Sent, root: Root) -> Iterator[Violation]:
    adapter = sent.get("adapter", "debugpy")
    is_native = adapter != "debugpy"
    of_native = _given(sent, NATIVE)
    if is_native:
        yield from _native(sent, adapter)
    elif of_native:
        for name in of_native:
            message = "needs adapter gdbserver or lldb-server"
            yield Violation(Problem(name, message, sent[name]), _NATIVE_ADVICE)
    else:
        yield from _just_one(sent, JUST_ONE[Launch], _LAUNCH_ADVICE)
    if root is None:
        here = "or create the session with project_root."
        yield from _absolute(
            sent, "cwd", "must be absolute: the session has no project_root",
            f"Send an absolute path, {here}",
        )  # fmt: skip
        if not _given(sent, ["cwd"]):
            yield from _absolute(
                sent, "program" if is_native else "script",
                "must be absolute: there is neither cwd nor project_root",
                f"Send an absolute path, or cwd beside it, {here}",
            )  # fmt: skip
    if sent.get("console") == "externalTerminal":
        yield Violation(
            Problem("console", "a relay cannot open a terminal window", sent["console"]),
            "Leave console out: output and input go through the relay.",
        )


def _native(sent: Sent, adapter: Any) -> Iterator[Violation]:
    if not _given(sent, ["program"]):
        yield Violation(Problem("program", MISSING), _NATIVE_ADVICE)
    of_session = OF_SESSION if "mode" in sent else ()
    for name in _given(sent, [name for name in OF_PYTHON if name not in of_session]):
        message = f"not allowed with adapter {adapter}: it is for Python programs"
        yield Violation(Problem(name, message, sent[name]), "Leave it out.")


def _run(sent: Sent, _: Root) -> Iterator[Violation]:
    root = sent.get("project_root")
    yield from _launch(sent, root)
    # Relative files start at the first of these; any text does here.
    yield from _batch(sent, sent.get("cwd") or root or sent.get("script"))
    if isinstance(trace := sent.get("trace"), Mapping):
        for wrong in _just_one(trace, JUST_ONE[Trace], _TRACE_ADVICE):
            inside = Problem(f"trace.{wrong.problem.field}", wrong.problem.message)
            yield Violation(inside, wrong.advice)
        yield from _spots(trace, "trace.")


def _trace(sent: Sent, _: Root) -> Iterator[Violation]:
    yield from _just_one(sent, JUST_ONE[Trace], _TRACE_ADVICE)
    yield from _spots(sent, "")


def _spots(trace: Sent, prefix: str) -> Iterator[Violation]:
    """The places of a trace: each a line, a text or a function; the first two with their file."""
    places = trace.get("at")
    for index, at in enumerate(places if isinstance(places, list) else ()):
        if not isinstance(at, Mapping):
            continue
        given, field = _given(at, PLACES), f"{prefix}at[{index}]"
        if len(given) != 1:
            message = f"give exactly one of {', '.join(PLACES)}"
            yield Violation(Problem(f"{field}.line", message, at.get("line")), _TRACE_ADVICE)
        if given != ["function"] and not _given(at, ["file"]):
            yield Violation(Problem(f"{field}.file", MISSING), _TRACE_ADVICE)


def _attach(sent: Sent, _: Root) -> Iterator[Violation]:
    yield from _just_one(sent, _TARGETS, _ATTACH_ADVICE)
    if _given(sent, ["host"]) and not _given(sent, ["port"]):
        yield Violation(Problem("host", "needs port as well", sent["host"]), _ATTACH_ADVICE)
    if _given(sent, ["port"]):
        for name in _given(sent, NOT_WITH_PORT):
            yield Violation(
                Problem(name, "not allowed together with port", sent[name]), "Leave it out."
            )


def _input(sent: Sent, _: Root) -> Iterator[Violation]:
    encoded = sent.get("base64")
    if isinstance(encoded, str):
        try:
            base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            message = f"does not decode: {error}"
            yield Violation(
                Problem("base64", message, encoded[:200]),
                "Send standard base64, or text in input.",
            )
    if all(sent.get(name) in NOTHING_TO_WRITE for name in AT_LEAST_ONE[Input]):
        advice = 'Send {"input": "text\\n"}, base64 or {"eof": true}.'
        message = "there is nothing to write: give input, base64 or eof"
        yield Violation(Problem("input", message, sent.get("input")), advice)


# -- breakpoints


def _breakpoints(sent: Sent, root: Root) -> Iterator[Violation]:
    batch = sent.get("breakpoints")
    single = _given(sent, sorted(ONE_BREAKPOINT))
    if batch is None:
        yield from _breakpoint(sent, root)
        return
    for name in single:
        yield Violation(
            Problem(name, "not allowed together with breakpoints", sent[name]),
            "Send either a batch in breakpoints, or the fields of one breakpoint.",
        )
    yield from _batch(sent, root)


def _batch(sent: Sent, root: Root) -> Iterator[Violation]:
    batch = sent.get("breakpoints")
    # For a batch that is too long, only its length is reported.
    entries = batch if isinstance(batch, list) and len(batch) <= MAX_BATCH else ()
    for index, entry in enumerate(entries):
        for problem, advice in _breakpoint(entry, root) if isinstance(entry, dict) else ():
            field = f"breakpoints[{index}].{problem.field}"
            entry_problem = Problem(field, problem.message, problem.value, Code.INVALID_REQUEST)
            yield Violation(entry_problem, advice)


def _watchpoint(entry: Sent, root: Root) -> Iterator[Violation]:
    for name in _given(entry, NOT_WITH_WATCH):
        yield Violation(Problem(name, "not allowed together with watch", entry[name]), _WATCH)
    scope = entry.get("in")
    if scope is None:
        if "frame_id" not in entry:
            yield Violation(Problem("in", MISSING), _WATCH)
        return
    if not isinstance(scope, Mapping):
        return
    if len(_given(scope, ["function", "files"])) != 1:
        yield Violation(Problem("in", "give one of function, files", dict(scope)), _WATCH)
    for name in ("file", "files"):
        files = scope.get(name)
        for file in files if isinstance(files, list) else [files]:
            if root is None and isinstance(file, str) and file and not is_absolute(file):
                message = "must be absolute: the session has no project_root"
                yield Violation(Problem(f"in.{name}", message, file), _WATCH)


_WATCH: Final = (
    'Send {"watch": "self.balance", "in": {"function": "Account.withdraw", "file": '
    '"/absolute/bank.py"}}, or "in": {"files": ["/absolute/bank.py"]}.'
)


def _breakpoint(entry: Sent, root: Root) -> Iterator[Violation]:
    if _given(entry, ["watch"]):
        yield from _watchpoint(entry, root)
        return
    for name in _given(entry, ["in", "frame_id"]):
        yield Violation(Problem(name, "needs watch as well", entry[name]), _EXAMPLE)
    places = _given(entry, PLACES)
    file, field = file_of(entry)
    if file is None and places != ["function"]:
        yield Violation(Problem(field, MISSING), _EXAMPLE)
    if not places:
        yield Violation(Problem("line", MISSING), _EXAMPLE)
    for name in places if len(places) > 1 else ():
        yield Violation(Problem(name, f"give one of {', '.join(PLACES)}", entry[name]), _EXAMPLE)
    if _given(entry, ["expected_text"]) and "line" not in places:
        text = entry["expected_text"]
        yield Violation(Problem("expected_text", "needs line as well", text), _EXAMPLE)
    if field == "source.path" and _given(entry, ["file"]) and entry["file"] != file:
        message = f"differs from source.path {file!r}"
        yield Violation(Problem("file", message, entry["file"]), "Send one of file and source.")
    if root is None and isinstance(file, str) and file and not is_absolute(file):
        yield Violation(
            Problem(field, "must be absolute: the session has no project_root", file),
            "Send an absolute path, or create the session with project_root.",
        )


def file_of(entry: Sent) -> tuple[Any, str]:
    """The file that an entry names, and the field that names it."""
    source = entry.get("source")
    if isinstance(source, Mapping) and source.get("path") is not None:
        return source["path"], "source.path"
    if source is None and _given(entry, ["file"]):
        return entry["file"], "file"
    # The source has no valid path: its shape is reported elsewhere.
    return source, "source.path"


def _in_project(name: str) -> Rule:
    def rule(sent: Sent, root: Root) -> Iterator[Violation]:
        if root is None:
            yield from _absolute(
                sent, name, "must be absolute: the session has no project_root",
                "Send an absolute path, or create the session with project_root.",
            )  # fmt: skip

    return rule


_RULES: Final[Mapping[type[Params], Rule]] = {
    CreateSession: _create,
    PatchSession: _config,
    ImportSession: _imported,
    PutProfile: _kept,
    Variables: _page,
    GetSource: _source,
    Launch: _launch,
    Attach: _attach,
    Input: _input,
    SetBreakpoints: _breakpoints,
    ListBreakpoints: _in_project("file"),
    RunTo: _in_project("file"),
    Run: _run,
    Trace: _trace,
}
