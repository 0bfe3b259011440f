"""What a launch needs, found before anything is started; each lack has its own code."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.program import Launch
from debug_relay.protocol.sessions import Program
from debug_relay.protocol.version import MARK
from debug_relay.worker.interpreters import Interpreter
from debug_relay.worker.lines import LineBook, SyntaxProblem, closest_folder, closest_path
from debug_relay.worker.record import shown_environment

if TYPE_CHECKING:
    from debug_relay.worker.session import Session

_KINDS: Final = ("script", "module", "code")
# The relay's own: a program must not take itself for a relay or a client of one.
_OWN_VARIABLES: Final = "OPENCODE_DEBUG_"


class Plan(Struct):
    """All that a launch needs, found to be there."""

    kind: str
    target: str
    args: list[str]
    cwd: str
    env: dict[str, str]
    interpreter: Interpreter
    python_args: list[str]
    stop_on_entry: bool
    just_my_code: bool
    program: Program


async def plan(session: Session, params: Launch) -> Plan:
    kind = _kind(params)
    _refuse_later_fields(params)
    config = session.params.config
    target = getattr(params, kind)
    given_cwd = _directory(session, params) if params.cwd else None
    if kind == "script":
        target = _script(target, given_cwd, config.project_root)
    cwd = given_cwd or _directory(session, params)
    interpreter = await session.interpreters.find(
        params.python_path or (None if params.venv else config.python_path),
        params.venv,
        config.project_root,
        session.params.python_default,
    )
    book = LineBook(interpreter, project_root=config.project_root)
    session.breakpoints.use(book)
    if kind == "script":
        await _check_syntax(book, target)
    elif kind == "code":
        await _check_code(book, target)
    return Plan(
        kind=kind,
        target=target,
        args=params.args,
        cwd=cwd,
        env=_environment(session, params),
        interpreter=interpreter,
        python_args=params.python_args,
        stop_on_entry=_given(params.stop_on_entry, config.stop_on_entry),
        just_my_code=_given(params.just_my_code, config.just_my_code),
        program=Program(
            script=target if kind == "script" else None,
            module=target if kind == "module" else None,
            args=params.args,
            cwd=cwd,
            env=shown_environment(dict(params.env)),
            python_path=interpreter.path,
            python_version=interpreter.version_text,
        ),
    )


def _given(value: bool | None, otherwise: bool) -> bool:
    return otherwise if value is None else value


def _kind(params: Launch) -> str:
    given = [name for name in _KINDS if getattr(params, name) is not None]
    if len(given) == 1:
        return given[0]
    what = "none of them was given" if not given else f"{' and '.join(given)} were given"
    raise RelayError(
        Code.INVALID_REQUEST,
        f"Launch needs one of script, module or code; {what}",
        'Send {"script": "/path/to/script.py"} or {"module": "package.module"}.',
        errors=[
            {"field": name, "message": "give exactly one of script, module, code", "value": None}
            for name in (given or ["script"])
        ],
    )


def _refuse_later_fields(params: Launch) -> None:
    if params.console == "externalTerminal":
        raise RelayError(
            Code.INVALID_REQUEST,
            "A relay has no terminal window to open",
            "Leave console out: output and input go through the relay.",
            errors=[{"field": "console", "message": "externalTerminal is not supported"}],
        )
    later = {
        "pty": params.pty or params.console == "integratedTerminal",
        "env_file": params.env_file is not None,
        "debug_subprocesses": params.debug_subprocesses,
        "keep_children": params.keep_children,
        "limits": params.limits is not None,
        "snapshot": params.snapshot is not False,
    }
    for field, wanted in later.items():
        if wanted:
            raise RelayError(
                Code.NOT_IMPLEMENTED,
                f"Launching with {field} is not there yet in this version",
                f"Leave {field} out.",
                field=field,
            )


def _directory(session: Session, params: Launch) -> str:
    root = session.params.config.project_root
    wanted = os.path.expanduser(params.cwd) if params.cwd else None
    if wanted is not None and not os.path.isabs(wanted) and root is not None:
        wanted = os.path.join(root, wanted)
    if wanted is None and root is None and params.script and os.path.isabs(params.script):
        # Neither was said: where the script lies, as a person in its folder would run it.
        wanted = os.path.dirname(params.script)
    chosen = wanted or root or os.path.expanduser("~")
    if os.path.isdir(chosen):
        return os.path.normpath(chosen)
    near = closest_folder(chosen)
    raise RelayError(
        Code.LAUNCH_CWD_NOT_FOUND,
        f"The working directory {chosen} does not exist",
        f"Did you mean {near}?" if near else "Create it, or give another cwd.",
        cwd=chosen,
        closest=near,
    )


def _script(script: str, cwd: str | None, root: str | None) -> str:
    script = os.path.expanduser(script)
    if not os.path.isabs(script):
        base = cwd or root
        if base is None:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"The script {script} is relative, and there is neither cwd nor project_root",
                "Send an absolute path, or cwd beside it.",
                errors=[{"field": "script", "message": "must be absolute", "value": script}],
            )
        script = os.path.join(base, script)
    script = os.path.normpath(script)
    if os.path.exists(script):
        return script
    near = closest_path(script, root)
    raise RelayError(
        Code.LAUNCH_SCRIPT_NOT_FOUND,
        f"The script {script} does not exist",
        f"Did you mean {near}?" if near else "Check the path of script.",
        script=script,
        closest=near,
    )


async def _check_syntax(book: LineBook, script: str) -> None:
    main = script
    if await asyncio.to_thread(os.path.isdir, script):
        main = os.path.join(script, "__main__.py")  # what Python runs of a folder
    try:
        facts = await book.facts(main)
    except RelayError as error:
        raise RelayError(
            Code.LAUNCH_SCRIPT_NOT_FOUND,
            error.message,
            error.details["suggestion"],
            script=script,
        ) from None
    problem = facts.syntax_error
    # A zip application is no source; the interpreter knows what to do with it.
    if problem is None or _is_archive(main):
        return
    raise _syntax_error(main, problem)


async def _check_code(book: LineBook, text: str) -> None:
    problem = await book.check_expression(text, "statements")
    if problem is not None:
        raise _syntax_error("<string>", problem)


def _syntax_error(place: str, problem: SyntaxProblem) -> RelayError:
    return RelayError(
        Code.LAUNCH_SYNTAX_ERROR,
        f"Python syntax error in {place}, line {problem.line}: {problem.message}",
        f"Correct line {problem.line} and launch again; the session is still created.",
        file=place,
        line=problem.line,
        offset=problem.offset,
        error_message=problem.message,
        text=problem.text,
    )


def _is_archive(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _environment(session: Session, params: Launch) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
    if params.venv:
        env["VIRTUAL_ENV"] = os.path.abspath(os.path.expanduser(params.venv))
        env["PATH"] = os.path.join(env["VIRTUAL_ENV"], "bin") + os.pathsep + env.get("PATH", "")
        env.pop("PYTHONHOME", None)
    if params.pythonpath:
        inherited = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
        env["PYTHONPATH"] = os.pathsep.join(params.pythonpath + inherited)
    for name, value in params.env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    env[MARK] = session.id
    return env
