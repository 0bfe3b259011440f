"""Reads from a command line of Python its options and the program that it runs.

Executed by `bootstrap` too, before anything else of ours; imports no other module of the relay.
"""

import os
import re

_WITHOUT_VALUE = "bBdEIOPqRsSuv"
_WITH_VALUE = "WX"
_RUNS = {"c": "code", "m": "module"}
_PYTHON = re.compile(r"python[0-9.]*[dt]*\Z")
_PYTHON_2 = re.compile(r"python2[0-9.]*\Z")
_LINKS = 8  # Symbolic links on the way to an interpreter.
# multiprocessing's trackers, which run none of the program's code.
_TRACKERS = (
    "from multiprocessing.resource_tracker import main;",
    "from multiprocessing.semaphore_tracker import main;",
)
# Up to 3.13 the fork server runs none of the program's code either, but forks all processes that
# do. From 3.14 on its command begins with other words and it imports the main module: there it is
# debugged like any other child.
_FORK_SERVER = "from multiprocessing.forkserver import main;"


class Parts(object):
    """One command line."""

    def __init__(self, options, kind, target, rest):
        self.options = options
        self.kind = kind  # script, module, code, stdin
        self.target = target
        self.rest = rest

    @property
    def is_tracker(self):
        return self.kind == "code" and self.target.startswith(_TRACKERS)

    @property
    def is_fork_server(self):
        return self.kind == "code" and self.target.startswith(_FORK_SERVER)


def is_python(path):
    return _PYTHON.match(_name(path)) is not None


def is_python_2(path):
    """Whether the path, or a path that it links to, has the name of a Python 2."""
    for _ in range(_LINKS):
        if _PYTHON_2.match(_name(path)):
            return True
        try:
            target = os.readlink(path)
        except (OSError, ValueError):
            return False
        path = target if target.startswith("/") else path[: -len(_name(path))] + target
    return False


def _name(path):
    # We do not use `os.path`, because it is Python code: a breakpoint of the user in it would hit.
    return path.rpartition("/")[2]


def parted(arguments):
    """The parts of the words after the interpreter's name. None if they do not run a program, such
    as `--version`, or have options that would affect our own file, such as `-i` and `-x`.
    """
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "-":
            return Parts(arguments[:at], "stdin", "-", arguments[at + 1 :])
        if word == "--":
            at += 1
            break
        if word == "--check-hash-based-pycs":
            at += 2
            continue
        if not word.startswith("-"):
            break
        for place, letter in enumerate(word[1:], 1):
            if letter in _WITHOUT_VALUE:
                continue
            value = word[place + 1 :]
            after = at + 1
            if letter in _WITH_VALUE or letter in _RUNS:
                if not value:
                    value = arguments[after] if after < len(arguments) else None
                    after += 1
                if value is None:
                    return None
            if letter in _RUNS:
                options = arguments[:at] + ([word[:place]] if place > 1 else [])
                return Parts(options, _RUNS[letter], value, arguments[after:])
            if letter not in _WITH_VALUE:
                return None
            at = after - 1
            break
        at += 1
    if at < len(arguments):
        options = arguments[:at]
        if options[-1:] == ["--"]:
            del options[-1]
        return Parts(options, "script", arguments[at], arguments[at + 1 :])
    return Parts(arguments, "stdin", "", [])
