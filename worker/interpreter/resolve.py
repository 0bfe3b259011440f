"""Finds the Python interpreter of a session, and what that interpreter is.

It looks at files and asks the interpreter about itself (`-I -S`); nothing of the user's is
imported. It knows nothing of sessions or launching, and of debugpy only the versions that it
supports.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.version import FIRST_PYTHON, LAST_PYTHON, PYTHONS
from debug_relay.worker.interpreter.ownership import user_for
from debug_relay.worker.interpreter.query_process import Reply, run_briefly

_RANGE: Final = f"Python {PYTHONS} can be debugged"
ASK_SECONDS: Final = 10.0  # An interpreter says what it is within this time.
_ANSWER_BYTES: Final = 4096  # What an interpreter says of itself.
_PROJECT_VENVS: Final = (".venv", "venv")
_MINORS: Final = range(LAST_PYTHON[1], FIRST_PYTHON[1] - 1, -1)
_NAMES: Final = ("python3", "python", *(f"python3.{minor}" for minor in _MINORS))
# The question begins with a call, so that a shell mistaken for Python reports a syntax error and
# runs no command.
_QUESTION: Final = (
    "print(__import__('json').dumps((lambda sys: {"
    "'executable': sys.executable or '', 'version': list(sys.version_info[:3]),"
    "'version_text': sys.version.split()[0], 'implementation': sys.implementation.name,"
    "'free_threaded': 't' in sys.abiflags"
    "})(__import__('sys'))))"
)


class Interpreter(Struct, frozen=True, kw_only=True):
    """An interpreter that debugpy can debug."""

    path: str  # the path by which it was found; in a venv the link, which makes the venv active
    executable: str  # the path that it reports itself: behind a pyenv shim, the real one
    version: tuple[int, int, int]
    version_text: str
    found: bool = False  # in the project, and not by its name

    @property
    def minor(self) -> tuple[int, int]:
        return self.version[:2]


class _Answer(Struct):
    executable: str
    version: tuple[int, int, int]
    version_text: str
    implementation: str
    free_threaded: bool = False


def own_interpreter() -> Interpreter:
    """The interpreter that runs this worker."""
    return Interpreter(
        path=sys.executable,
        executable=sys.executable,
        version=sys.version_info[:3],
        version_text=sys.version.split()[0],
    )


class Choice(Struct, frozen=True):
    path: str  # absolute; links are kept
    found: bool  # in the project, and not by its name


def choose(
    python_path: str | None = None,
    venv: str | None = None,
    project_root: str | None = None,
    default: str | None = None,
) -> Choice:
    """The interpreter that these settings select.

    Without any setting it is `python3` on PATH, which a user gets by typing that, and only then the
    relay's own interpreter: a relay that was installed separately (pipx, uv tool) does not have the
    program's packages.
    """
    if python_path:
        return Choice(_explicit(python_path, "python_path", project_root), False)
    if venv:
        return Choice(_of_prefix(_absolute(venv, "venv", project_root), project_root), False)
    for prefix in _project_venvs(project_root):
        path = _of_prefix(prefix, project_root)
        # We check the owner before any message recommends this venv: another user may have put it
        # there.
        user_for([path], found=True)
        return Choice(path, True)
    if default:
        return Choice(_explicit(default, "[python] default_path", project_root), False)
    return Choice(_on_path("python3") or sys.executable, False)


def _explicit(wanted: str, field: str, project_root: str | None) -> str:
    wanted = os.path.expanduser(wanted)
    if os.sep not in wanted:
        found = _on_path(wanted)
        if found:
            return found
        if not project_root or not os.path.exists(os.path.join(project_root, wanted)):
            raise not_found(f"{field} {wanted!r} is not on PATH", project_root, wanted)
    path = _absolute(wanted, field, project_root)
    if os.path.isdir(path):
        inside = next((p for p in _pythons_of(path) if _runnable(p)), None)
        instead = f"Give {field} as {inside}, or venv as {path}." if inside else None
        raise not_found(f"{field} {path} is a directory", project_root, path, instead)
    return _checked(path, field, project_root)


def _absolute(wanted: str, field: str, project_root: str | None) -> str:
    wanted = os.path.expanduser(wanted)
    if os.path.isabs(wanted):
        return os.path.abspath(wanted)
    if project_root is None:
        raise not_found(
            f"{field} {wanted!r} is relative and the session has no project_root",
            None,
            wanted,
            f"Give {field} as an absolute path, or create the session with project_root.",
        )
    return os.path.abspath(os.path.join(project_root, wanted))


def _of_prefix(prefix: str, project_root: str | None) -> str:
    if not os.path.exists(prefix):
        raise not_found(f"venv {prefix} does not exist", project_root, prefix)
    if not os.path.isdir(prefix):
        instead = f"Give python_path as {prefix} instead of venv." if _runnable(prefix) else None
        raise not_found(f"venv {prefix} is not a directory", project_root, prefix, instead)
    for path in _pythons_of(prefix):
        if os.path.lexists(path):
            return _checked(path, "venv", project_root)
    raise not_found(f"venv {prefix} has no bin/python", project_root, prefix)


def _checked(path: str, field: str, project_root: str | None) -> str:
    if os.path.islink(path) and not os.path.exists(path):
        target = os.path.realpath(path)
        message = f"{field}: {path} is a link to {target}, which does not exist"
    elif not os.path.exists(path):
        message = f"{field} {path} does not exist"
    elif not os.path.isfile(path):
        message = f"{field} {path} is not a file"
    elif not os.access(path, os.X_OK):
        message = f"{field} {path} is not executable"
    else:
        return path
    raise not_found(message, project_root, path)


def _pythons_of(prefix: str) -> list[str]:
    return [os.path.join(prefix, "bin", name) for name in ("python", "python3")]


def _project_venvs(project_root: str | None) -> Iterator[str]:
    for name in _PROJECT_VENVS if project_root else ():
        prefix = os.path.join(os.path.abspath(project_root or ""), name)
        # A broken link counts: silently using another interpreter would surprise more.
        if any(os.path.lexists(path) for path in _pythons_of(prefix)):
            yield prefix


def _on_path(name: str) -> str | None:
    # Relative entries of PATH would refer to the worker's own directory, which no caller chose.
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    absolute = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))
    return shutil.which(name, path=absolute) if absolute else None


def _runnable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def alternatives(project_root: str | None = None, wanted: str | None = None) -> list[str]:
    """Interpreters that exist near the wanted one: beside it, in the project's venv, on PATH."""
    near = wanted if wanted and os.path.isabs(wanted) else None
    candidates = [os.path.join(os.path.dirname(near), name) for name in _NAMES] if near else []
    candidates += _pythons_of(near) if near else []
    candidates += [path for prefix in _project_venvs(project_root) for path in _pythons_of(prefix)]
    candidates += [one for path in map(_on_path, _NAMES) if path for one in _behind_shim(path)]
    found: dict[tuple[str, str], str] = {}
    for path in [*candidates, sys.executable]:
        real = os.path.realpath(path)
        if _runnable(path) and not (near and real == os.path.realpath(near)):
            # python3 beside python is the same interpreter; a venv's link to either is not.
            found.setdefault((os.path.dirname(path), os.path.basename(real)), path)
    return list(found.values())[:10]


def _behind_shim(path: str) -> list[str]:
    """The installed versions behind a pyenv shim, which itself may run none of them."""
    folder, name = os.path.split(path)
    if os.path.basename(folder) != "shims":
        return [path]
    return sorted(glob.glob(os.path.join(os.path.dirname(folder), "versions", "*", "bin", name)))


def not_found(
    message: str, project_root: str | None, wanted: str | None, suggestion: str | None = None
) -> RelayError:
    others = alternatives(project_root, wanted)
    if suggestion is None and others:
        suggestion = f"Give python_path as one of: {', '.join(others[:5])}."
    return RelayError(
        Code.LAUNCH_INTERPRETER_NOT_FOUND,
        message,
        suggestion,
        python_path=wanted,
        alternatives=others,
    )


async def ask(path: str, project_root: str | None, found: bool = False) -> Interpreter:
    """Runs the interpreter to learn what it is; refused if debugpy cannot debug it."""
    try:
        reply = await run_briefly(
            path, ["-c", _QUESTION], b"", ASK_SECONDS, _ANSWER_BYTES, project_root, found=found
        )
    except TimeoutError:
        raise not_found(
            f"{path} did not answer within {ASK_SECONDS:g} s and was ended", project_root, path
        ) from None
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise not_found(f"{path} cannot be run: {error}", project_root, path) from None
    try:
        answer = msgspec.json.decode(reply.out, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise not_found(_no_answer(path, reply), project_root, path) from None
    return _supported(path, answer, project_root)


def _no_answer(path: str, reply: Reply) -> str:
    if b"nknown option: -I" in reply.err:
        return f"{path} is too old: {_RANGE}"
    lines = reply.err.decode("utf-8", "replace").strip().splitlines()
    text = (
        lines[-1] if lines and lines[0].startswith("Traceback") else "; ".join(filter(None, lines))
    )
    # A program that is not Python may echo the question; the caller need not see it.
    tail = f" and printed: {text[:300]}" if text and "__import__" not in text else ""
    return f"{path} does not answer as Python does: it ended with code {reply.code}{tail}"


def _supported(path: str, answer: _Answer, project_root: str | None) -> Interpreter:
    who = f"{path} is {answer.implementation} {answer.version_text}"
    if answer.implementation != "cpython":
        raise not_found(f"{who}; only CPython can be debugged", project_root, path)
    if answer.free_threaded:
        who += " without the interpreter's lock (free-threaded)"
        raise not_found(f"{who}; debugpy has no build for those", project_root, path)
    if not FIRST_PYTHON <= answer.version[:2] <= LAST_PYTHON:
        raise not_found(f"{who}; {_RANGE}", project_root, path)
    return Interpreter(
        path=path,
        executable=answer.executable or path,
        version=answer.version,
        version_text=answer.version_text,
    )
