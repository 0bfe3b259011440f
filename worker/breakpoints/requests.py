"""Reads breakpoint requests, checks what needs no file, and makes the errors for callers.

Checks that need the file or the interpreter are in `verification`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import BreakpointSpec, SetBreakpoints
from debug_relay.protocol.refusals import Problem
from debug_relay.worker.source.code_lines import SyntaxProblem


def specs_of(params: SetBreakpoints) -> list[BreakpointSpec]:
    if params.breakpoints is not None:
        return params.breakpoints
    return [BreakpointSpec(**{name: getattr(params, name) for name in _FIELDS})]


_FIELDS: Final = BreakpointSpec.__struct_fields__


def batch_refusal(
    bad: list[tuple[int, RelayError]], specs: list[BreakpointSpec], single: bool
) -> RelayError:
    """One error for all refused entries; each entry has its own code."""
    first = bad[0][1]
    codes = {error.code for _, error in bad}
    code = first.code if len(codes) == 1 else Code.INVALID_REQUEST
    place = "" if single else f"breakpoints[{bad[0][0]}]: "
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    details = {**first.details} if len(bad) == 1 else {}
    details.pop("suggestion", None)
    details["errors"] = _problems(first, specs[0], "") if single else problems_of(bad, specs)
    message = first.message if single else f"No breakpoint was set: {place}{first.message}{more}"
    return RelayError(code, message, first.details["suggestion"], **details)


def problems_of(bad: list[tuple[int, RelayError]], specs: list[BreakpointSpec]) -> list[Problem]:
    """The wrong fields of a batch's entries."""
    found = []
    for index, error in bad:
        for problem in _problems(error, specs[index], f"breakpoints[{index}]"):
            problem.code, problem.suggestion = error.code, error.details["suggestion"]
            found.append(problem)
    return found


def _problems(error: RelayError, spec: BreakpointSpec, entry: str) -> list[Problem]:
    prefix = f"{entry}." if entry else ""
    if listed := error.details.get("errors"):
        return [Problem(prefix + one.field, one.message, one.value) for one in listed]
    field = _field_of(error, spec)
    if field is None:
        return [Problem(entry, error.message)]
    at_file = field in ("file", "source.path")
    value = path_of(spec) if at_file else getattr(spec, field)
    return [Problem(prefix + field, error.message, value)]


def _field_of(error: RelayError, spec: BreakpointSpec) -> str | None:
    """The field for which the entry was refused."""
    if error.code is Code.BREAKPOINT_INVALID_LINE:
        return "line"
    if error.code is Code.BREAKPOINT_FILE_NOT_FOUND:
        return "file" if spec.source is None else "source.path"
    if error.code is Code.BREAKPOINT_TEXT_MISMATCH:
        return "text" if spec.text is not None else "expected_text"
    if error.code is Code.BREAKPOINT_INVALID_CONDITION:
        return next((name for name in _EXPRESSIONS if name in error.details), None)
    return error.details.get("field")


def path_of(spec: BreakpointSpec) -> str | None:
    return spec.source.path if spec.source is not None else spec.file


_EXPRESSIONS: Final = ("hit_condition", "log_message", "condition")


def bad_condition(condition: str, problem: SyntaxProblem) -> RelayError:
    return RelayError(
        Code.BREAKPOINT_INVALID_CONDITION,
        f"The condition {condition!r} does not compile: {problem.message}",
        f"Correct it at column {problem.offset}; it is a Python expression such as x > 10.",
        condition=condition,
        error_message=problem.message,
        offset=problem.offset,
    )


def bad_template(text: str, problem: str) -> RelayError:
    return RelayError(
        Code.BREAKPOINT_INVALID_CONDITION,
        f"The log message {text!r} does not compile: {problem}",
        "Write it as the inside of an f-string: {name}, {value!r:>10}, {{ and }} for braces.",
        log_message=text,
        error_message=problem,
    )


def spec_of(kept: dict[str, Any]) -> BreakpointSpec:
    """The request from the kept fields of a breakpoint: in a record, an export, a project's
    file.
    """
    fields = {name: value for name, value in kept.items() if name != "id" and value is not None}
    return msgspec.convert(fields, BreakpointSpec)


def incomplete(spec: BreakpointSpec, has_file: bool) -> RelayError:
    """The refusal of a breakpoint that names no place, or two."""
    if has_file and spec.line is not None:
        field, problem = "text", "not allowed together with line: a breakpoint has one of them"
    else:
        field, problem = ("line" if has_file else "source.path"), "required"
    return RelayError(
        Code.INVALID_REQUEST,
        f"A breakpoint needs {field}"
        if problem == "required"
        else "text cannot be combined with a line; to check a line's text, send expected_text",
        'Send {"source": {"path": "/absolute/file.py"}, "line": 12}, or "text" for the line.',
        errors=[Problem(field, problem)],
    )


def text_mismatch(
    message: str, suggestion: str, lines: list[dict[str, object]], **details: Any
) -> RelayError:
    """The error for a text that does not fit; `lines` may be the ones that were meant."""
    if lines:
        shown = "; ".join(f"{line['line']}: {str(line['text']).strip()}" for line in lines[:7])
        suggestion = f"{suggestion} Lines: {shown}"
    return RelayError(Code.BREAKPOINT_TEXT_MISMATCH, message, suggestion, lines=lines, **details)


def kept(new: Any, old: Any) -> Any:
    return old if new is msgspec.UNSET else new
