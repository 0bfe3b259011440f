"""The command line: its words, and the exit codes.

Exit code 2 means that the call or the configuration cannot be understood, 1 that the command
failed. A word's module is imported when the word is used: a shell's completion, and an agent that
calls once a second, must not wait for what other commands need. The modules of `client/` and
`commands/` need the standard library alone.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import NamedTuple, NoReturn

from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.cli.exit_codes import FAILED, INTERRUPTED, MISUSED, OK


class Word(NamedTuple):
    """A command as the list of commands shows it; `module` has the rest."""

    group: str
    module: str
    summary: str


_PROGRAM, _LOOK, _DRIVE, _FOLLOW, _RELAY, _SHELL = (
    "start a program, or attach to one",
    "look",
    "run, step, stop",
    "follow, and everything else",
    "the relay",
    "this command line",
)
# To add a command: a line here, and the command in COMMANDS of the module.
WORDS = {
    "ps": Word(_PROGRAM, "commands.listing", "list the Python processes, and how to attach"),
    "launch": Word(_PROGRAM, "commands.programs", "start a program under the debugger"),
    "attach": Word(_PROGRAM, "commands.programs", "debug a process that runs already"),
    "run": Word(_PROGRAM, "commands.whole_run", "run a program to its end, explain its crash"),
    "sessions": Word(_LOOK, "commands.listing", "list the sessions"),
    "status": Word(_LOOK, "commands.listing", "show a session"),
    "where": Word(_LOOK, "commands.looking", "show where a program is: its stack and the source"),
    "locals": Word(_LOOK, "commands.looking", "show the variables of a frame"),
    "eval": Word(_LOOK, "commands.looking", "evaluate an expression in a stopped program"),
    "break": Word(_DRIVE, "commands.breaking", "set, list and remove breakpoints"),
    "continue": Word(_DRIVE, "commands.running", "resume a stopped program"),
    "step": Word(_DRIVE, "commands.running", "run into the next call"),
    "next": Word(_DRIVE, "commands.running", "run to the next line of this function"),
    "out": Word(_DRIVE, "commands.running", "run until this function has returned"),
    "pause": Word(_DRIVE, "commands.running", "stop a running program"),
    "rm": Word(_DRIVE, "commands.listing", "end sessions and forget them"),
    "wait": Word(_FOLLOW, "commands.following", "wait for the next stop or end"),
    "events": Word(_FOLLOW, "commands.following", "print what happens, one line for each event"),
    "tunnel": Word(_FOLLOW, "commands.tunnel", "carry a debugger or an IDE to a session elsewhere"),
    "logs": Word(_FOLLOW, "commands.following", "print what a program has printed"),
    "mcp": Word(_FOLLOW, "commands.fronts", "let an agent debug by the Model Context Protocol"),
    "stdio": Word(_FOLLOW, "commands.fronts", "let an IDE debug a program by JSON lines"),
    "call": Word(_FOLLOW, "commands.calling", "call any operation of the relay by its name"),
    "serve": Word(_RELAY, "serving", "run the relay until it is stopped"),
    "config": Word(_RELAY, "serving", "print every setting and where it comes from"),
    "token": Word(_RELAY, "token_commands", "create, list and revoke bearer tokens"),
    "openapi": Word(_RELAY, "commands.texts", "print the OpenAPI document"),
    "doctor": Word(_RELAY, "doctor", "check this machine, and say how to mend what is wrong"),
    "skill": Word(_SHELL, "commands.texts", "print how an agent debugs with the relay"),
    "completion": Word(_SHELL, "commands.completing", "print a shell's part of the completion"),
}  # fmt: skip

# A full disk, a quota, a limit on files, a terminal that has gone.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> NoReturn:
    """The command as a process, which ends here.

    All that must outlive it is written and closed by now, and the kernel takes the rest. If the
    interpreter freed each object of a relay first, that would take 45 ms.
    """
    _open_standard_streams()
    code = exit_code(sys.argv[1:])
    with suppress(OSError):  # a full disk; there is nowhere to say so
        sys.stderr.flush()
    os._exit(code)


def _open_standard_streams() -> None:
    """Opens those that the caller has closed on /dev/null: a socket must not become stdout."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            file = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if file != number:
                os.dup2(file, number)
                os.close(file)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def exit_code(argv: Sequence[str]) -> int:
    """Runs `debug-relay ARGV…`; returns the exit code."""
    try:
        try:
            code = _run(list(argv))
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else FAILED
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter's last flush must not fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stderr.write(f"debug-relay: standard output cannot be written: {error.strerror}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(argv: list[str]) -> int:
    if not argv:
        sys.stderr.write(help_text())
        return MISUSED
    word = argv[0]
    if word in ("-h", "--help"):
        sys.stdout.write(help_text())
        return OK
    if word == "help":
        argv = [argv[1], "--help"] if len(argv) > 1 else ["--help"]
        return _run(argv)
    if word == "--version":
        sys.stdout.write(f"debug-relay {VERSION}\n")
        return OK
    if word == "__complete":
        return _complete(argv[1:])
    if word not in WORDS:
        return _unknown(word)
    from debug_relay.supervisor.cli.client.running_command import run_command

    return run_command(word, WORDS[word].summary, command_module(word), argv[1:])


def command_module(word: str) -> ModuleType:
    return importlib.import_module(f"debug_relay.supervisor.cli.{WORDS[word].module}")


def _complete(argv: list[str]) -> int:
    """Prints the words that fit next; the shells call this, people do not."""
    from debug_relay.supervisor.cli.commands.completing import complete

    return complete(argv)


def help_text() -> str:
    lines = ["usage: debug-relay COMMAND …", ""]
    group = ""
    for name, word in WORDS.items():
        if word.group != group:
            group = word.group
            lines.append(f"{group}:")
        lines.append(f"  {name:<11} {word.summary}")
    lines += ["", "debug-relay COMMAND --help explains one, with an example."]
    return "\n".join(lines) + "\n"


def _unknown(word: str) -> int:
    from debug_relay.supervisor.cli.client.parser import hint

    if word.startswith("-"):
        known = ("--help", "--version")
        more = (
            ""
            if any(word in name for name in known)
            else f"; options follow the command: serve {word} …"
        )
        sys.stderr.write(f"debug-relay: unknown option {word}{more}\n")
    else:
        sys.stderr.write(
            f"debug-relay: unknown command {word}; {hint(word, WORDS, 'debug-relay')}\n"
        )
    return MISUSED
