"""The program that `launch PROGRAM …` and `run -- PROGRAM …` mean, and its interpreter.

A command such as `pytest` is looked up as the shell does it. An installed one is a Python script
that names its interpreter in its first line.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any

from debug_relay.supervisor.cli.client.address import Misused

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?t?")
_FIRST_LINE_BYTES = 1000  # The kernel reads fewer of a script's first line.
_VALUED = ("-X", "-W")  # Options of the interpreter that take the next word.


def described(command: list[str], cwd: str | None) -> dict[str, Any]:
    """The fields of a launch: `script`, `module` or `code`, `args`, and the interpreter if the
    command names one. Raises Misused for what is no Python program.
    """
    folder = os.path.abspath(cwd or os.getcwd())
    word, rest = command[0], command[1:]
    if word == "--" and rest:
        return described(rest, cwd)
    if word in ("-m", "-c"):
        return _after_python(command)
    if _PYTHON.fullmatch(os.path.basename(word)):
        return {**_after_python(rest), "python_path": _found(word, folder) or word}
    path = os.path.join(folder, os.path.expanduser(word))
    if os.path.exists(path) and (word.endswith((".py", ".pyw", ".pyz")) or os.path.isdir(path)):
        return {"script": path, "args": rest}
    found = _found(word, folder)
    if found is None:
        if os.path.isfile(path):
            found = path
        elif word.endswith(".py") or "/" in word:
            return {"script": path, "args": rest}  # the relay says what is close to it
        else:
            raise Misused(
                f"{word} is neither a file here nor a command on PATH; for a module: -m {word}"
            )
    interpreter = _interpreter_of(found)
    if interpreter is None and _is_pyenv_shim(found):
        # A shell script, which would start the command of the version that is chosen here.
        python = os.path.join(os.path.dirname(found), "python3")
        return {"module": word.replace("-", "_"), "args": rest, "python_path": python}
    if interpreter is None:
        raise Misused(f"{found} is no Python program; give a script, or python and its arguments")
    return {"script": found, "args": rest, "python_path": interpreter}


def name_of(program: dict[str, Any]) -> str:
    """The name of a session of this program."""
    if "code" in program:
        return "code"
    text = program.get("module") or os.path.basename(program["script"].rstrip("/"))
    name = re.sub(r"[^a-z0-9_.-]+", "-", text.lower().removesuffix(".py")).strip("-._")
    return name[:50] or "program"


def _after_python(rest: list[str]) -> dict[str, Any]:
    """`python REST…`: options of the interpreter, then a script, a module or code."""
    options: list[str] = []
    while rest:
        word, *rest = rest
        for letter, field in (("-m", "module"), ("-c", "code")):
            if word.startswith(letter):
                attached = word[2:]
                if not attached and not rest:
                    raise Misused(f"{letter} needs an argument")
                value, args = (attached, rest) if attached else (rest[0], rest[1:])
                return _with(options, {field: value, "args": args})
        if word in _VALUED and rest:
            options += [word, rest[0]]
            rest = rest[1:]
        elif word.startswith("-") and word != "-":
            options.append(word)
        else:
            return _with(options, {"script": os.path.abspath(word), "args": rest})
    raise Misused("python without a program is an interactive session; give a script, -m or -c")


def _with(options: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "python_args": options} if options else fields


def _found(word: str, folder: str) -> str | None:
    """The command's file: on PATH, else of the virtual environment that lies here."""
    if "/" in word:
        path = os.path.join(folder, os.path.expanduser(word))
        return path if os.access(path, os.X_OK) and os.path.isfile(path) else None
    places = [os.environ.get("PATH", os.defpath), f"{folder}/.venv/bin", f"{folder}/venv/bin"]
    return shutil.which(word, path=os.pathsep.join(places))


def _interpreter_of(path: str) -> str | None:
    """The Python of a script's first line, also behind `env` and the `sh` of long paths."""
    lines = _head(path).splitlines()
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if words and os.path.basename(words[0]) == "sh" and len(lines) > 1:
        # pip writes `'''exec' /long/path/python "$0" "$@"` where a path is too long for the kernel.
        quoted = re.match(r"'''exec' \"?([^\"]+?)\"? \"\$0\"", lines[1])
        words = [quoted[1]] if quoted else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    if not words or not _PYTHON.fullmatch(os.path.basename(words[0])):
        return None
    return words[0] if "/" in words[0] else shutil.which(words[0])


def _is_pyenv_shim(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)) == "shims" and "pyenv" in _head(path)


def _head(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_FIRST_LINE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
