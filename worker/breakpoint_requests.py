"""What callers ask of breakpoints: read, checked by itself, and refused in words.

What needs the file or the interpreter is judged in `breakpoints`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from debug_relay.protocol.breakpoints import BreakpointSpec, SetBreakpoints
from debug_relay.protocol.envelope import error_body
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.lines import SyntaxProblem
from debug_relay.worker.probe.expressions import Template


def specs_of(params: SetBreakpoints) -> list[BreakpointSpec]:
    single = {
        name: getattr(params, name)
        for name in BreakpointSpec.__struct_fields__
        if getattr(params, name) != getattr(_DEFAULTS, name)
    }
    if params.breakpoints is None:
        return [BreakpointSpec(**single)]
    if single:
        raise RelayError(
            Code.INVALID_REQUEST,
            f"breakpoints and {', '.join(single)} exclude each other",
            "Send either a batch in breakpoints, or the fields of one breakpoint.",
            errors=[{"field": name, "message": "not beside breakpoints"} for name in single],
        )
    return list(params.breakpoints)


_DEFAULTS: Final = BreakpointSpec()


def batch_refusal(bad: list[tuple[int, RelayError]], single: bool) -> RelayError:
    if single:
        return bad[0][1]
    codes = {error.code for _, error in bad}
    code = codes.pop() if len(codes) == 1 else Code.INVALID_REQUEST
    first = bad[0][1]
    details = {**first.details} if len(bad) == 1 else {}
    details.pop("suggestion", None)
    details.pop("errors", None)
    return RelayError(
        code,
        f"No breakpoint was set: breakpoints[{bad[0][0]}]: {first.message}"
        + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""),
        first.details["suggestion"],
        errors=[
            {"field": f"breakpoints[{index}]", **msgspec.json.decode(error_body(error))}
            for index, error in bad
        ],
        **details,
    )


def bad_condition(condition: str, problem: SyntaxProblem) -> RelayError:
    return RelayError(
        Code.BREAKPOINT_INVALID_CONDITION,
        f"The condition {condition!r} does not compile: {problem.message}",
        f"Correct it at column {problem.offset}; it is a Python expression such as x > 10.",
        condition=condition,
        error_message=problem.message,
        offset=problem.offset,
    )


def check_template(text: str) -> None:
    try:
        Template(text)  # type: ignore[no-untyped-call]  # Python 3.8, for the program
    except SyntaxError as error:
        raise RelayError(
            Code.BREAKPOINT_INVALID_CONDITION,
            f"The log message {text!r} does not compile: {error.msg}",
            "Write it as the inside of an f-string: {name}, {value!r:>10}, {{ and }} for braces.",
            log_message=text,
            error_message=error.msg,
        ) from None


def not_yet(field: str) -> RelayError:
    return RelayError(
        Code.NOT_IMPLEMENTED,
        f"Breakpoints with {field} are not there yet in this version",
        "Set a line breakpoint: source.path, line, condition, hit_condition, log_message.",
        field=field,
    )


def kept(new: Any, old: Any) -> Any:
    return old if new is msgspec.UNSET else new
