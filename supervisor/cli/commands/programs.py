"""`launch` and `attach`: a program in a new session, or in one that is there."""

from __future__ import annotations

import os
import shutil
import signal
from argparse import REMAINDER, Namespace
from contextlib import suppress
from typing import Any

from debug_relay.supervisor.cli.client.address import Misused, NoRelay
from debug_relay.supervisor.cli.client.calls import Refused, Reply
from debug_relay.supervisor.cli.client.invocation import Invocation, shown_name
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_fields
from debug_relay.supervisor.cli.commands import places, python_program

_CTRL_C = (signal.SIGINT,)
_LAUNCH_SECONDS = 10.0  # How long `launch` waits for the first stop by default.
# These texts describe fields of a launch as a person in a shell means them.
WORDS_HERE = {
    "cwd": "the working directory; default: this one",
    "venv": "a venv or conda prefix, which is activated; default: the one that is active here, "
    "else .venv or venv of the working directory",
    "python_path": "the interpreter: a path, or a name on PATH; no venv is activated then",
    "env_file": "a file of NAME=value lines, as shells and dotenv write them; --env overrides it",
}
_WORDS = {
    "stop_on_entry": "stop at the first line outside the standard library and installed packages",
    "just_my_code": "do not step into libraries",
    "wait": "how long to wait for the first stop or the end; default: 10 for a launch, 0 for an "
    "attach",
    "adapter": "what debugs the program: debugpy for Python, the others for native programs",
    "repr": "safe runs none of the program's code to show a value",
}


def _add_session_options(parser: Parser) -> None:
    parser.add_argument("--session", help="use this session instead of a new one")
    parser.add_argument("--name", help="what the new session is called")
    parser.add_argument(
        "-b",
        "--break",
        dest="breaks",
        action="append",
        metavar="PLACE",
        help="stop at FILE:LINE, or at a function; may be repeated",
    )


def add_program(parser: Parser) -> None:
    parser.add_argument("command", nargs=REMAINDER, metavar="PROGRAM", help="a script or command, "
                        "and its arguments")  # fmt: skip
    parser.add_argument("-m", dest="module", nargs=REMAINDER, metavar="MODULE", help="or a module")
    parser.add_argument("-c", dest="code", nargs=REMAINDER, metavar="CODE", help="or Python code")


def command_of(given: Namespace) -> list[str]:
    """The program and its arguments, as one would type them behind `python` or in a shell."""
    if given.module is not None:
        return ["-m", *given.module]
    if given.code is not None:
        return ["-c", *given.code]
    if not given.command:
        given.parser.error("give a program: a script with its arguments, -m MODULE, or -c CODE")
    return list(given.command)


def _launch_options(parser: Parser) -> None:
    add_program(parser)
    _add_session_options(parser)
    add_fields(parser, "launch", "cwd", "venv", "env_file", python="python_path", words=WORDS_HERE)
    parser.add_argument("-e", "--env", action="append", metavar="NAME[=VALUE]", help="set a "
                        "variable; without a value it is taken from here")  # fmt: skip
    add_fields(
        parser, "launch", "stop_on_entry", "just_my_code", "debug_subprocesses", "wait", "adapter",
        words=_WORDS,
    )  # fmt: skip
    parser.add_argument("--at-once", action="store_true", help="do not hold a native program until "
                        "its debugger connects")  # fmt: skip
    parser.add_argument(
        "--raised", action="store_true", help="stop at raised exceptions, not only uncaught ones"
    )


def _launch(invocation: Invocation, given: Namespace) -> int:
    if given.adapter not in (None, "debugpy"):
        return _launch_native(invocation, given)
    program = python_program.described(command_of(given), given.cwd)
    if given.python_path or given.venv:
        program.pop("python_path", None)
    elif "python_path" not in program and (active := os.environ.get("VIRTUAL_ENV")):
        given.venv = active
    fields = {
        "cwd": os.path.abspath(given.cwd or os.getcwd()),
        "python_path": given.python_path,
        "venv": given.venv and os.path.abspath(given.venv),
        "env": environment(given.env),
        "env_file": given.env_file and os.path.abspath(given.env_file),
        "stop_on_entry": given.stop_on_entry,
        "just_my_code": given.just_my_code,
        "debug_subprocesses": given.debug_subprocesses,
        "stop_on_exception": True if given.raised else None,
        "wait": _LAUNCH_SECONDS if given.wait is None else given.wait,
        **program,
    }
    return _begin(invocation, given, "launch", python_program.name_of(program), fields)


def _launch_native(invocation: Invocation, given: Namespace) -> int:
    """Launches a compiled program. Options for Python are sent as well: the relay refuses them."""
    path, *rest = command_of(given)
    folder = os.path.abspath(given.cwd or os.getcwd())
    found = path if "/" in path else shutil.which(path) or path
    fields = {
        "adapter": given.adapter,
        "program": os.path.join(folder, os.path.expanduser(found)),
        "args": rest,
        "cwd": folder,
        "env": environment(given.env),
        "env_file": given.env_file and os.path.abspath(given.env_file),
        "wait_for_debugger": False if given.at_once else None,
        "venv": given.venv,
        "python_path": given.python_path,
        "stop_on_entry": given.stop_on_entry,
        "just_my_code": given.just_my_code,
        "debug_subprocesses": given.debug_subprocesses,
        "stop_on_exception": True if given.raised else None,
        "wait": given.wait,
    }
    code = _begin(invocation, given, "launch", os.path.basename(path), fields)
    invocation.say("connect the debugger to the address that debug-relay status shows")
    return code


def environment(given: list[str] | None) -> dict[str, str] | None:
    """The variables of `--env NAME=VALUE`, and of `--env NAME` with the value that is here."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise Misused(f"--env {name}: there is no such variable here; give {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found or None


def _attach_options(parser: Parser) -> None:
    parser.add_argument("target", metavar="PID", help="a process as `ps` lists it, or HOST:PORT "
                        "where debugpy listens")  # fmt: skip
    _add_session_options(parser)
    add_fields(
        parser, "attach", "tree", "redirect_output", "repr", "just_my_code", "wait", words=_WORDS
    )


def _attach(invocation: Invocation, given: Namespace) -> int:
    host, colon, port = given.target.rpartition(":")
    number = port if colon else given.target
    if not number.isdigit():
        given.parser.error(f"{given.target} is no pid; debug-relay ps lists the processes")
    fields = {
        "pid": None if colon else int(number),
        "host": host or None,
        "port": int(number) if colon else None,
        "tree": given.tree,
        "redirect_output": given.redirect_output,
        "repr": given.repr,
        "just_my_code": given.just_my_code,
        "wait": given.wait,
    }
    return _begin(invocation, given, "attach", f"{'port' if colon else 'pid'}-{number}", fields)


def _begin(
    invocation: Invocation, given: Namespace, operation: str, name: str, fields: dict[str, Any]
) -> int:
    """Creates a session if none is given, sets its breakpoints, and starts. If that fails, no new
    session is left behind.
    """
    points = [places.breakpoint_at(text) for text in given.breaks or ()]
    if given.session is not None:
        id, is_new = invocation.session(given.session), False
    else:
        name = given.name or _free_name(invocation, name)
        # Relative files of later calls lie where the person stands.
        id, is_new = _created(invocation, name, fields.get("cwd")), True
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CTRL_C)
        if points:
            _warn_unverified(invocation, invocation.relay.call(
                "set-breakpoints", session_id=id, breakpoints=points))  # fmt: skip
        doing = "waiting for the first stop" if operation == "launch" else "attaching"
        reply = invocation.call(operation, doing, session_id=id, snapshot=True, **fields)
    except BaseException:
        if is_new:
            signal.pthread_sigmask(signal.SIG_BLOCK, _CTRL_C)  # a second Ctrl-C
            with suppress(NoRelay, Refused):
                invocation.relay.call("delete-session", session_id=id, force=True)
        raise
    invocation.say(f"session {name} ({id})" if is_new else f"session {id}")
    invocation.show(reply)
    return 0


def _created(invocation: Invocation, name: str, root: str | None) -> str:
    """The id of a new session. Ctrl-C waits from here on, until the caller can delete it: the relay
    creates the session also for a caller who has left.
    """
    invocation.relay.call("health")  # Ctrl-C ends the wait for a relay that does not answer
    signal.pthread_sigmask(signal.SIG_BLOCK, _CTRL_C)
    try:
        made = invocation.relay.call("create-session", name=name, project_root=root)
        return str(made.data["session_id"])
    except BaseException:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _CTRL_C)
        raise


def _warn_unverified(invocation: Invocation, reply: Reply) -> None:
    for point in reply.data["breakpoints"]:
        if not point.get("verified"):
            said = point.get("message") or "it is not verified"
            more = f"; {point['suggestion']}" if point.get("suggestion") else ""
            invocation.say(f"{point['id']}: {said}{more}")


def _free_name(invocation: Invocation, name: str) -> str:
    """The name, with a number behind it if a session has it already."""
    taken = {shown_name(item) for item in invocation.sessions()}
    if name not in taken:
        return name
    return next(f"{name}-{n}" for n in range(2, len(taken) + 3) if f"{name}-{n}" not in taken)


COMMANDS = {
    "launch": Command(
        _launch_options,
        _launch,
        "debug-relay launch --break shop.py:4 shop.py\n"
        "debug-relay launch --name text -m json.tool --help",
        "Options stand before the program, what follows it are the program's. It runs here, with "
        "the virtual environment that is active here, and what the relay has in its environment. "
        "A compiled program for gdb or lldb: --adapter gdbserver ./server.",
        interrupted="the program is ended",
    ),
    "attach": Command(
        _attach_options,
        _attach,
        "debug-relay attach 4242",
        "Attaching does not stop the process; debug-relay pause does. When the session is removed "
        "the process goes on as it was before.",
        interrupted="the process goes on as it was before",
    ),
}
