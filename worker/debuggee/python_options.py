"""The interpreter's options in a launch: which are allowed, and how they change the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from debug_relay.protocol.errors import Code, RelayError

_TAKE_A_VALUE: Final = "WX"
_INSTEAD: Final = {
    "c": "send the source in code",
    "m": "send the name in module",
    "V": "it prints a version and runs nothing",
    "x": "it would skip the first line of the debugger's bootstrap, not of the script; begin the "
    "script with a comment",
    "h": "it prints help and runs nothing",
    "?": "it prints help and runs nothing",
}


def check(args: Sequence[str]) -> None:
    """Refuse options with which the interpreter would run something else than the program."""
    waiting = False  # the next argument is an option's value
    for index, arg in enumerate(args):
        if waiting:
            waiting = False
        elif arg == "--check-hash-based-pycs":
            waiting = True
        elif arg.startswith(("--help", "--version")):
            raise _refused(index, arg, "it runs nothing")
        elif arg.startswith("--"):
            continue  # the interpreter itself explains best what is wrong with it
        elif len(arg) < 2 or not arg.startswith("-"):
            raise _refused(index, arg, "it is not an option; send the program's arguments in args")
        else:
            waiting = _check_letters(index, arg)
    if waiting:
        raise _refused(len(args) - 1, args[-1], "its value is missing")


def _check_letters(index: int, arg: str) -> bool:
    """Whether the option's value is the next argument."""
    for at, letter in enumerate(arg[1:], 2):
        if letter in _INSTEAD:
            raise _refused(index, arg, _INSTEAD[letter])
        if letter in _TAKE_A_VALUE:
            return at == len(arg)
    return False


def optimization(args: Sequence[str], env: Mapping[str, str]) -> int:
    """The interpreter's optimization level, by `-O`, `-OO` and PYTHONOPTIMIZE."""
    level = list(_letters(args)).count("O")
    if level == 0 and not ignores_environment(args) and env.get("PYTHONOPTIMIZE"):
        wanted = env["PYTHONOPTIMIZE"]
        level = int(wanted) if wanted.isdecimal() else 1
    return min(level, 2)


def ignores_environment(args: Sequence[str]) -> bool:
    return not {"E", "I"}.isdisjoint(_letters(args))


def _letters(args: Sequence[str]) -> Iterator[str]:
    """The letters of all options, without their values."""
    value_next = False
    for arg in args:
        if value_next or not arg.startswith("-") or arg.startswith("--"):
            value_next = arg == "--check-hash-based-pycs"
            continue
        letters = arg[1:]
        for at, letter in enumerate(letters, 1):
            yield letter
            if letter in _TAKE_A_VALUE:
                value_next = at == len(letters)
                break


def _refused(index: int, arg: str, reason: str) -> RelayError:
    return RelayError(
        Code.INVALID_REQUEST,
        f"The interpreter's argument {arg!r} cannot be used: {reason}",
        "python_args takes options such as -O, -u, -X dev or -W error.",
        errors=[{"field": f"python_args[{index}]", "message": reason, "value": arg}],
    )
