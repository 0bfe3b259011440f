"""The errors of a launch that cannot start its program: how callers see each of them."""

from __future__ import annotations

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.source.code_lines import SyntaxProblem

# -- before the program is started


def no_directory(what: str, path: str, why: str, near: str | None) -> RelayError:
    return RelayError(
        Code.LAUNCH_CWD_NOT_FOUND,
        f"The {what} {path} {why}",
        f"Did you mean {near}?" if near else "Create it, or give another cwd.",
        cwd=path,
        closest=near,
    )


def no_script(field: str, path: str, near: str | None) -> RelayError:
    """`field`: the field of the launch that names the file, `script` or `program`."""
    return RelayError(
        Code.LAUNCH_SCRIPT_NOT_FOUND,
        f"The {field} {path} does not exist",
        f"Did you mean {near}?" if near else f"Check the path of {field}.",
        **{field: path},
        closest=near,
    )


def unreadable_script(script: str, error: RelayError) -> RelayError:
    suggestion = error.details["suggestion"]
    return RelayError(Code.LAUNCH_SCRIPT_NOT_FOUND, error.message, suggestion, script=script)


def syntax_error(place: str, problem: SyntaxProblem) -> RelayError:
    return RelayError(
        Code.LAUNCH_SYNTAX_ERROR,
        f"Python syntax error in {place}, line {problem.line}: {problem.message}",
        f"Correct line {problem.line} and send the same call again.",
        file=place,
        line=problem.line,
        offset=problem.offset,
        error_message=problem.message,
        text=problem.text,
    )


# -- by the program's own bootstrap


def no_module(python: str, target: str, cwd: str, reason: str, *, by_name: bool) -> RelayError:
    """`by_name`: the launch named a module, and not a folder or archive."""
    called = f"module {target}" if by_name else target
    advice = (
        "Check module, cwd and pythonpath, or install it for that interpreter."
        if by_name
        else "Add a __main__.py to it, or launch one of its modules: send its name in module, and "
        "the folder in pythonpath."
    )
    return RelayError(
        Code.LAUNCH_MODULE_NOT_FOUND,
        f"{python} cannot run {called}: {reason}",
        advice,
        module=target,
        python_path=python,
        cwd=cwd,
    )


# -- while it starts; these are the reasons of `could_not_run`


def too_slow(seconds: float) -> str:
    return f"it did not start within {seconds:g} s"


def not_startable(error: OSError) -> str:
    return f"it could not be started: {error}"


def ended_early(code: int, signal: str | None) -> str:
    return f"it ended with {signal or f'exit code {code}'} before it was ready"


def could_not_run(
    python: str, what: str, reason: str, exit_code: int | None, tail: str
) -> RelayError:
    """`tail` is the end of what the program has printed."""
    return RelayError(
        Code.LAUNCH_FAILED,
        f"{python} could not run {what}: {reason}",
        "Read output_tail, correct the launch, and send the same call again.",
        exit_code=exit_code,
        output_tail=tail,
        python_path=python,
    )
