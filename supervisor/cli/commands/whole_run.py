"""`run -- PROGRAM …`: a program from its start to its end, and a report if it crashes."""

from __future__ import annotations

import os
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from debug_relay.supervisor.cli.client import terminal
from debug_relay.supervisor.cli.client.address import NoRelay
from debug_relay.supervisor.cli.client.calls import Refused
from debug_relay.supervisor.cli.client.invocation import Invocation
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_fields
from debug_relay.supervisor.cli.commands import places, python_program
from debug_relay.supervisor.cli.commands.following import output_bytes
from debug_relay.supervisor.cli.commands.programs import (
    WORDS_HERE,
    add_program,
    command_of,
    environment,
)
from debug_relay.supervisor.cli.exit_codes import FAILED, OK

# The variables that belong to this shell and to this command.
_NOT_PASSED = ("_", "SHLVL", "OLDPWD", "PWD")
_TEST_RUNNERS = ("pytest", "py.test", "unittest")
# A shell waits for ever and shows everything; the relay has bounds.
_SECONDS = 300.0  # The longest run that the relay allows.
_OUTPUT_BYTES = 10_000_000  # The most output that the relay reports.
_OUTPUT_EACH_SECONDS = 0.3  # The command shows new output this often.
_ENTRIES = 1000  # Entries of output of one call.
_LEAVE_SECONDS = 5.0  # The thread that follows the output ends within this time.
_DEFINED = ("module", "function", "type", "builtin_function_or_method")
_MOST_LOCALS = 12  # Local variables of one frame of a crash.
_VALUE_CHARACTERS = 100  # One value in a crash report on a terminal.


def _options(parser: Parser) -> None:
    add_program(parser)
    add_fields(parser, "run", "cwd", "venv", "env_file", python="python_path", words=WORDS_HERE)
    parser.add_argument("-e", "--env", action="append", metavar="NAME=VALUE", help="set a variable")
    add_fields(
        parser, "run", "timeout", "just_my_code", keep="keep_on_exception", words={
            "timeout": f"the program is ended after this time; default, and at most: {_SECONDS:g}",
            "keep_on_exception": "keep the program, stopped at the exception",
        },
    )  # fmt: skip
    parser.add_argument(
        "--raised",
        action="store_true",
        help="report the first raised exception, also one that the program handles",
    )
    parser.add_argument(
        "-b",
        "--break",
        dest="breaks",
        action="append",
        metavar="PLACE",
        help="show the first stop at FILE:LINE, or at a function, and run on; may be repeated",
    )
    parser.add_argument(
        "-t",
        "--trace",
        action="append",
        metavar="PLACE=EXPRESSION,…",
        help="record the values of expressions at FILE:LINE each time; may be repeated",
    )


def _run(invocation: Invocation, given: Namespace) -> int:
    program = python_program.described(command_of(given), given.cwd)
    if given.python_path or given.venv:
        program.pop("python_path", None)
    elif "python_path" not in program and (active := os.environ.get("VIRTUAL_ENV")):
        given.venv = active
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_PASSED and not name.startswith("OPENCODE_DEBUG_")
    }
    fields: dict[str, Any] = {
        "cwd": os.path.abspath(given.cwd or os.getcwd()),
        "python_path": given.python_path,
        "venv": given.venv and os.path.abspath(given.venv),
        "env_file": given.env_file and os.path.abspath(given.env_file),
        "env": {**env, **(environment(given.env) or {})},
        "just_my_code": given.just_my_code,
        "keep_on_exception": given.keep_on_exception,
        "timeout": _SECONDS if given.timeout is None else given.timeout,
        "output_bytes": _OUTPUT_BYTES,
        "on_stop": "continue",
        "exceptions": _exceptions(program, given.raised),
        "breakpoints": [places.breakpoint_at(text) for text in given.breaks or ()] or None,
        "trace": {"at": [_trace_at(text, given) for text in given.trace]} if given.trace else None,
        **program,
    }
    if invocation.as_json:
        with invocation.progress("running"):
            reply = invocation.relay.call("run", **fields)
        invocation.show(reply)
        report = reply.data
    else:
        fields["name"] = f"run-{os.urandom(4).hex()}"
        relay = invocation.relay
        report = _Live(Invocation(given), fields["name"]).shown_while(
            lambda: relay.call("run", **fields).data
        )
        _explain(report)
    ended_well = report.get("exit_code") == 0 and not report.get("session_id")
    return OK if ended_well else FAILED


class _Live:
    """The output of a run, written as it comes: a shell would not wait for the end either."""

    def __init__(self, invocation: Invocation, name: str) -> None:
        self._here = invocation
        self._name = name
        self._cursor: str | None = None
        self._written = bytearray()
        self._over = threading.Event()
        self._end_progress: Callable[[], None] = lambda: None

    def shown_while(self, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Writes the output of the run; returns its report."""
        with self._here.progress("running") as self._end_progress:
            follower = threading.Thread(target=self._follow, daemon=True)
            follower.start()
            try:
                report = run()
            finally:
                self._over.set()
                follower.join(_LEAVE_SECONDS)
        self._write(self._missing(report))
        return report

    def _follow(self) -> None:
        with suppress(NoRelay, Refused, OSError):  # the report has all of it
            while not self._over.wait(_OUTPUT_EACH_SECONDS):
                while self._write_more() and not self._over.is_set():
                    pass

    def _write_more(self) -> bool:
        """Writes what has come; whether there is more already."""
        try:
            page = self._here.relay.call(
                "output", session_id=self._name, cursor=self._cursor, limit=_ENTRIES
            ).data
        except Refused as refused:
            if refused.code != "SESSION_NOT_FOUND":
                raise
            return False  # it has not begun, or is over
        self._cursor = page["next_cursor"]
        self._write(b"".join(output_bytes(entry) for entry in page.get("entries") or ()))
        return bool(page.get("has_more"))

    def _missing(self, report: dict[str, Any]) -> bytes:
        """The output that the report has beyond what was written."""
        written = len(self._written.decode("utf-8", "replace").encode())
        left_out = report.get("output_left_out", 0)
        report["output_left_out"] = max(left_out - written, 0)
        whole: str = report.get("output", "")
        return whole.encode("utf-8", "replace")[max(written - left_out, 0) :]

    def _write(self, data: bytes) -> None:
        if data:
            self._end_progress()
            self._written += data
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _exceptions(program: dict[str, Any], raised: bool) -> dict[str, Any] | None:
    """The exceptions that are reported beside an uncaught one. A test runner handles those of a
    test that fails, so there it is the ones that leave the test's own code.
    """
    if raised:
        return {"filters": ["raised", "uncaught"]}
    name = program.get("module") or os.path.basename(program.get("script", ""))
    return {"filters": ["user_unhandled", "uncaught"]} if name in _TEST_RUNNERS else None


def _trace_at(text: str, given: Namespace) -> dict[str, Any]:
    place, equals, expressions = text.partition("=")
    point = places.breakpoint_at(place)
    if not equals or not expressions or "line" not in point:
        given.parser.error(f"--trace {text}: give FILE:LINE=EXPRESSION, or several with commas")
    return {**point, "capture": [one.strip() for one in expressions.split(",")]}


def _explain(report: dict[str, Any]) -> None:
    """Prints on stderr what is known beside the output, which is the program's."""
    lines: list[str] = []
    if trace := report.get("trace"):
        lines += _rows(trace)
    if stop := report.get("stop"):
        lines += _stop(stop, report.get("stops", 1))
    lines += report.get("never_hit") or ()
    if crash := report.get("exception"):
        lines += _crash(crash)
    if threads := report.get("threads"):
        lines += ["", _red("its threads, when the time was up:")]
        lines += [line for thread in threads for line in _thread(thread)]
        lines += [
            _red("deadlock: threads " + ", ".join(map(str, cycle)) + " wait for each other")
            for cycle in report.get("deadlocks") or ()
        ]
    if report.get("note"):
        lines.append(report["note"])
    if id := report.get("session_id"):
        lines.append(f"the program is kept, stopped there: debug-relay where {id}")
    else:
        lines.append(_ending(report))
    encoding = sys.stderr.encoding or "utf-8"
    for line in lines:
        sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _ending(report: dict[str, Any]) -> str:
    how = f"exit code {report['exit_code']}" if report.get("exit_code") is not None else "no exit"
    if report.get("signal"):
        how = f"killed by {report['signal']}"
    reason = report.get("end_reason")
    if reason == "timeout":
        return "it was ended: the time was up"
    return f"{how}" + (f" ({reason})" if reason not in (None, "target_exited") else "")


def _rows(trace: dict[str, Any]) -> list[str]:
    rows = [
        [f"{row['path']}:{row['line']}", str(row["hit"])]
        + [f"{name} = {value}" for name, value in (row.get("values") or {}).items()]
        for row in trace.get("rows") or ()
    ]
    width = max((len(row) for row in rows), default=2)
    head = ["PLACE", "HIT", *["VALUE"] * (width - 2)]
    lines = list(terminal.table(head, [row + [""] * (width - len(row)) for row in rows]))
    if trace.get("left_out"):
        lines.append(f"({trace['left_out']} more rows)")
    return lines + list(trace.get("warnings") or ())


def _crash(crash: dict[str, Any]) -> list[str]:
    """The exception, then its frames, the innermost first, each with its line and its locals."""
    message = terminal.harmless(crash.get("message", ""))
    lines = ["", _red(f"{crash['type']}: {message}" if message else crash["type"])]
    return lines + _frames(crash.get("frames") or [], crash) + [""]


def _stop(stop: dict[str, Any], stops: int) -> list[str]:
    """The first stop at a breakpoint of the command line."""
    times = f", the first of {stops}" if stops > 1 else ""
    top, *callers = (
        {**frame, "path": frame["source"]["path"]} for frame in stop.get("frames") or ()
    )
    left_out = stop.get("total_locals", 0) - len(stop.get("locals") or ())
    top |= {"locals": stop.get("locals"), "locals_left_out": left_out}
    hit = ", ".join(stop.get("hit_breakpoints") or ())
    return ["", _yellow(f"stop at {hit}{times}"), *_frames([top, *callers], stop), ""]


def _frames(frames: list[dict[str, Any]], whole: dict[str, Any]) -> list[str]:
    """The user's frames; others in a row are one line, where they are."""
    lines: list[str] = []
    folds = list(whole.get("folded") or ())
    for frame in frames:
        while folds and folds[0]["first"] < frame.get("id", 0):
            lines.append(_folded(folds.pop(0)))
        lines += _frame(frame)
    lines += [_folded(fold) for fold in folds]
    shown = len(frames) + sum(fold["count"] for fold in whole.get("folded") or ())
    hidden = whole.get("total_frames", shown) - shown
    return lines + [f"  … {hidden} more frames"] * (hidden > 0)


def _folded(fold: dict[str, Any]) -> str:
    return f"  … {fold['count']} frame{'s' * (fold['count'] > 1)} of {', '.join(fold['libraries'])}"


def _frame(frame: dict[str, Any]) -> list[str]:
    """The frame's place, its line, and its variables without what a module only defines."""
    lines = [_bold(f"  {frame['path']}:{frame['line']} in {frame['name']}")]
    if source := _source_line(frame["path"], frame["line"]):
        lines.append(_yellow(f"  → {source}"))
    known = [
        one
        for one in frame.get("locals") or ()
        if frame["name"] != "<module>" or one.get("type") not in _DEFINED
    ]
    lines += [
        f"      {one['name']} = {_short(one.get('value', ''))}" for one in known[:_MOST_LOCALS]
    ]
    left = max(len(known) - _MOST_LOCALS, 0) + frame.get("locals_left_out", 0)
    return lines + [f"      … {left} more"] * (left > 0)


def _thread(thread: dict[str, Any]) -> list[str]:
    waits = thread.get("waits_for") or {}
    words = [str(waits[key]) for key in ("kind", "what", "value") if waits.get(key)]
    held = [
        f"thread {one['thread_id']} {one.get('name', '')} {one.get('how', 'holds it')}"
        for one in waits.get("held_by") or ()
        if one.get("thread_id")
    ]
    said = f": waits for {' '.join(words)}" * bool(words) + "".join(f"; {one}" for one in held)
    lines = [_bold(f"  thread {thread['id']} {thread.get('name', '')}{said}")]
    for frame in thread.get("frames") or ():
        lines.append(f"    {frame['path']}:{frame['line']} in {frame['name']}")
        lines += [
            f"      {one['name']} = {_short(one.get('value', ''))}"
            for one in (frame.get("locals") or [])[:_MOST_LOCALS]
        ]
    return lines


def _source_line(path: str, number: int) -> str | None:
    """The line as it is on this machine; None where the file is elsewhere."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for count, line in enumerate(file, 1):
                if count == number:
                    return terminal.harmless(line.strip())
    except OSError:
        pass  # the program may have run elsewhere
    return None


def _short(value: str) -> str:
    value = terminal.harmless(value.replace("\n", "\\n"))
    return value if len(value) <= _VALUE_CHARACTERS else value[:_VALUE_CHARACTERS] + "…"


def _red(text: str) -> str:
    return terminal.paint(text, "1;31", sys.stderr)


def _bold(text: str) -> str:
    return terminal.paint(text, terminal.BOLD, sys.stderr)


def _yellow(text: str) -> str:
    return terminal.paint(text, "1;33", sys.stderr)


COMMANDS = {
    "run": Command(
        _options,
        _run,
        "debug-relay run -- python -c 'print(6 * 7)'\n"
        "debug-relay run --break shop.py:4 -- shop.py\n"
        "debug-relay run --trace shop.py:4=price,amount -- shop.py",
        "The program runs to its end as it would in this shell, with its environment. If an "
        "exception ends it, or a test fails, the stack is shown with the variables of each frame. "
        "If the time is over, each thread is shown, and what it waits for. The exit code is "
        "0 if the program's is. To look around at a breakpoint: debug-relay launch --break.",
        interrupted="the program is ended",
    )
}
