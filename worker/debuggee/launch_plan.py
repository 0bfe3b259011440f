"""Finds all that a launch needs before anything is started; each lack has an error code."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.blueprint import ShownLaunch, given_fields, shown_launch
from debug_relay.protocol.models.fields import TerminalSize
from debug_relay.protocol.models.program import Launch
from debug_relay.protocol.models.sessions import Program
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.system.files import open_regular
from debug_relay.protocol.version import MARK
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debuggee import python_options, start_refusals
from debug_relay.worker.debuggee.environment import UNBUFFERED, environment, terminal
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.interpreter.ownership import require_ours
from debug_relay.worker.interpreter.resolve import Interpreter
from debug_relay.worker.joining.listener import JoinListener
from debug_relay.worker.source.code_lines import (
    CodeLines,
    closest_folder,
    closest_path,
)
from debug_relay.worker.state.settings import Settings

# The end of a file in which a zip archive is recognised: its last record and the longest comment
# behind it.
_ARCHIVE_TAIL_BYTES: Final = 22 + 65535
_KINDS: Final = ("script", "module", "code")
# One environment variable, name and value; the kernel's bound without the zero at the end.
_MOST_VARIABLE_BYTES: Final = 131_071


class Plan(Struct):
    """All that a launch needs; all of it exists."""

    kind: str
    target: str
    args: list[str]
    cwd: str
    env: dict[str, str]
    interpreter: Interpreter
    python_args: list[str]
    stop_on_entry: bool
    just_my_code: bool
    terminal: TerminalSize | None
    keep_children: bool
    debug_subprocesses: bool
    program: Program
    arguments: dict[str, Any]  # the fields that were given
    shown: ShownLaunch
    code_lines: CodeLines  # verifies the program's lines


class LaunchPlanner:
    """Finds all that a launch needs, before anything is started."""

    def __init__(
        self,
        settings: Settings,
        interpreters: InterpreterCache,
        breakpoints: Breakpoints,
        joining: JoinListener,
    ) -> None:
        self._settings = settings
        self._joining = joining
        self._interpreters = interpreters
        self._breakpoints = breakpoints

    async def plan(self, params: Launch) -> Plan:
        kind = next(name for name in _KINDS if getattr(params, name) is not None)
        python_options.check(params.python_args)
        config = self._settings.config
        target = getattr(params, kind)
        root = config.project_root
        given_cwd = directory(params, root) if params.cwd else None
        if kind == "script":
            target = existing_file(target, given_cwd, root)
        cwd = given_cwd or directory(params, root)
        interpreter = await self._interpreters.find(
            params.python_path or (None if params.venv or config.venv else config.python_path),
            params.venv or config.venv,
            config.project_root,
            self._settings.params.python_default,
        )
        if not interpreter.found:  # one that we found ourselves was examined then
            await asyncio.to_thread(require_ours, [interpreter.path, interpreter.executable])
        env = await program_environment(params, self._settings, cwd, interpreter, self._joining)
        optimize = python_options.optimization(params.python_args, env)
        code_lines = self._breakpoints.verifier.code_lines_of(interpreter, optimize)
        if kind == "script":
            await _check_syntax(code_lines, target)
        elif kind == "code":
            await _check_code(code_lines, target)
        arguments = given_fields(params)
        shown = await asyncio.to_thread(shown_launch, arguments)
        return Plan(
            kind=kind,
            target=target,
            args=params.args,
            cwd=cwd,
            env=env,
            interpreter=interpreter,
            python_args=_options(params.python_args, env),
            stop_on_entry=_given(params.stop_on_entry, config.stop_on_entry),
            just_my_code=_given(params.just_my_code, config.just_my_code),
            terminal=terminal(params),
            keep_children=params.keep_children,
            debug_subprocesses=params.debug_subprocesses,
            program=Program(
                script=target if kind == "script" else None,
                module=target if kind == "module" else None,
                args=shown.args,
                cwd=cwd,
                env=shown.env,
                python_path=interpreter.path,
                python_version=interpreter.version_text,
            ),
            arguments=arguments,
            shown=shown,
            code_lines=code_lines,
        )


def directory(params: Launch, root: str | None) -> str:
    """The working directory; `root` is the session's project root."""
    wanted = os.path.expanduser(params.cwd) if params.cwd else None
    file = params.script or params.program
    if wanted is not None and not os.path.isabs(wanted) and root is not None:
        wanted = os.path.join(root, wanted)
    if wanted is None and root is None and file and os.path.isabs(file):
        # Neither cwd nor project_root is set: use the file's folder, as a person would.
        wanted = os.path.dirname(file)
    chosen = wanted or root or os.path.expanduser("~")
    if os.path.isdir(chosen):
        return os.path.normpath(chosen)
    near = closest_folder(chosen)
    why = "is not a directory" if os.path.exists(chosen) else "does not exist"
    what = "working directory" if wanted or root is None else "session's project_root"
    raise start_refusals.no_directory(what, chosen, why, near)


def _options(args: list[str], env: dict[str, str]) -> list[str]:
    unseen = env.get(UNBUFFERED) and python_options.ignores_environment(args)
    return ["-u", *args] if unseen else args


async def program_environment(
    params: Launch,
    settings: Settings,
    cwd: str,
    interpreter: Interpreter | None,
    joining: JoinListener,
) -> dict[str, str]:
    """The environment that the program starts with; `interpreter` is None for a native program."""
    # In a thread, because it reads files of the project, perhaps from a slow disk.
    env = await asyncio.to_thread(environment, params, settings.config, cwd, interpreter, joining)
    _check_lengths(env)
    if not params.keep_children:
        env[MARK] = settings.id  # the sweep finds the program's processes by it
    return env


def _check_lengths(env: dict[str, str]) -> None:
    for name, value in env.items():
        length = len(f"{name}={value}".encode("utf-8", "surrogatepass"))
        if length > _MOST_VARIABLE_BYTES:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"The variable {name} of the program's environment is too long for the kernel: "
                f"{length} bytes, name and all, of at most {_MOST_VARIABLE_BYTES}",
                "Write it into a file and give the program that file's path.",
                errors=[Problem("env", f"{name} is too long")],
            )


def _given(value: bool | None, otherwise: bool) -> bool:
    return otherwise if value is None else value


def existing_file(script: str, cwd: str | None, root: str | None, *, field: str = "script") -> str:
    """The absolute path of the file that a launch names in this field."""
    script = os.path.expanduser(script)
    if not os.path.isabs(script):
        base = cwd or root
        assert base is not None  # validation has refused the launch otherwise
        script = os.path.join(base, script)
    script = os.path.normpath(script)
    if os.path.exists(script):
        return script
    raise start_refusals.no_script(field, script, closest_path(script, root))


async def _check_syntax(code_lines: CodeLines, script: str) -> None:
    main = script
    if await asyncio.to_thread(os.path.isdir, script):
        main = os.path.join(script, "__main__.py")  # Python runs this file of a folder
    try:
        facts = await code_lines.facts(main)
    except RelayError as error:
        raise start_refusals.unreadable_script(script, error) from None
    problem = facts.syntax_error
    # The file is no source. The interpreter may be able to run it, and otherwise reports why not.
    if problem is None or main.endswith(".pyc") or await asyncio.to_thread(_is_archive, main):
        return
    raise start_refusals.syntax_error(main, problem)


async def _check_code(code_lines: CodeLines, text: str) -> None:
    problem = await code_lines.check_expression(text, "program")
    if problem is not None:
        raise start_refusals.syntax_error("<string>", problem)


def _is_archive(path: str) -> bool:
    """Whether the file ends with a zip file's record. Python knows a zip file by that: there may
    be a `#!` line in front.
    """
    with open(path, "rb", opener=open_regular) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _ARCHIVE_TAIL_BYTES))
        return b"PK\x05\x06" in file.read()
