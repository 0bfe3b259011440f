"""The environment of a launched program.

Later variables win: first the relay's environment without the relay's own variables, then where
this session can be joined, then what an activated venv would set, then `env_file`, then `env`.
PYTHONUNBUFFERED is set first of all: into a pipe Python prints only when some kilobytes are full
and at its end, and loses them if it is killed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import TerminalSize
from debug_relay.protocol.models.program import Launch
from debug_relay.protocol.models.sessions import SessionConfig
from debug_relay.protocol.system.files import FileRefused, read_bounded
from debug_relay.worker.debuggee import env_file
from debug_relay.worker.interpreter.resolve import Interpreter
from debug_relay.worker.joining.listener import JoinListener

# The relay's own variables: a program must not take itself for a relay or for its client.
_OWN_VARIABLES: Final = "OPENCODE_DEBUG_"
# A program finds the port of its own session here. The relay may itself be the program of another
# session, whose variables it has inherited.
_URI: Final = "DEBUG_SESSION_URI"
_TOKEN: Final = "DEBUG_SESSION_TOKEN"
_TERMINAL: Final = "xterm-256color"
UNBUFFERED: Final = "PYTHONUNBUFFERED"
_MOST_BYTES: Final = 1 << 20  # One file of a venv that is read.


class _CondaState(Struct):
    env_vars: dict[str, Any] = {}


def environment(
    params: Launch,
    config: SessionConfig,
    cwd: str,
    interpreter: Interpreter | None,
    joining: JoinListener,
) -> dict[str, str]:
    """`interpreter` is None for a native program."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
    if interpreter is not None:
        env.setdefault(UNBUFFERED, "1")
    env[_URI], env[_TOKEN] = joining.uri, joining.token
    prefix = chosen_venv(params, config, interpreter) if interpreter is not None else None
    if prefix is not None:
        _activate(env, prefix)
    if params.env_file is not None:
        path = os.path.join(cwd, os.path.expanduser(params.env_file))
        env.update(env_file.read(path, env))
    _change(env, params.env)
    if params.pythonpath:
        # Paths are relative to the directory in which the program starts; it may change it later.
        folders = [os.path.join(cwd, os.path.expanduser(path)) for path in params.pythonpath]
        inherited = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
        env["PYTHONPATH"] = os.pathsep.join(folders + inherited)
    if terminal(params) is not None:
        env.setdefault("TERM", _TERMINAL)
    return env


def terminal(params: Launch) -> TerminalSize | None:
    """The size of the terminal that the program gets; None if it gets pipes."""
    if isinstance(params.pty, TerminalSize):
        return params.pty
    return TerminalSize() if params.pty or params.console == "integratedTerminal" else None


def _change(env: dict[str, str], changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value


def chosen_venv(params: Launch, config: SessionConfig, interpreter: Interpreter) -> str | None:
    """The prefix of the venv to activate: the named one, or the project's own.

    A launch that names an interpreter by its path gets that one, as in a shell, and activates none.
    """
    root = config.project_root
    if params.python_path:
        return None
    named = params.venv or config.venv
    if named:
        return os.path.abspath(os.path.join(root or "/", os.path.expanduser(named)))
    prefix = os.path.dirname(os.path.dirname(interpreter.path))
    if config.python_path or not root or os.path.dirname(prefix) != os.path.abspath(root):
        return None
    return prefix


def _activate(env: dict[str, str], prefix: str) -> None:
    """Set what the activation script would set; commands in it are not run."""
    path = env.get("PATH", os.defpath).split(os.pathsep)
    before = env.pop("VIRTUAL_ENV", None)
    if before is not None:
        # The script first leaves the venv that is active, as the relay's own may be.
        path = [entry for entry in path if entry != os.path.join(before, "bin")]
    env.pop("VIRTUAL_ENV_PROMPT", None)
    env["PATH"] = os.pathsep.join([os.path.join(prefix, "bin"), *path])
    if os.path.isdir(os.path.join(prefix, "conda-meta")):
        env["CONDA_PREFIX"] = prefix
        env["CONDA_DEFAULT_ENV"] = _conda_name(prefix)
        env["CONDA_SHLVL"] = "1"
        env.update(_conda_variables(prefix))
        return
    env["VIRTUAL_ENV"] = prefix
    env["VIRTUAL_ENV_PROMPT"] = _prompt(prefix) or os.path.basename(prefix)
    env.pop("PYTHONHOME", None)


def _conda_name(prefix: str) -> str:
    if os.path.basename(os.path.dirname(prefix)) == "envs":
        return os.path.basename(prefix)
    return "base" if os.path.isdir(os.path.join(prefix, "condabin")) else prefix


def _conda_variables(prefix: str) -> dict[str, str]:
    """The variables of `conda env config vars set`."""
    # A damaged file sets nothing.
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = _content(prefix, os.path.join("conda-meta", "state"))
        kept = msgspec.json.decode(raw, type=_CondaState)
        return {
            name: value
            for name, value in kept.env_vars.items()
            if isinstance(value, str) and value != "***unset***"
        }
    return {}


def _prompt(prefix: str) -> str | None:
    with suppress(UnicodeDecodeError):
        for line in _content(prefix, "pyvenv.cfg").decode().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "prompt":
                return value.strip().strip("'\"")
    return None


def _content(prefix: str, name: str) -> bytes:
    """The content of a file that venv or conda writes; empty if there is none."""
    path = os.path.join(prefix, name)
    try:
        return read_bounded(path, _MOST_BYTES)
    except FileRefused as error:
        raise RelayError(
            Code.LAUNCH_INTERPRETER_NOT_FOUND,
            f"The venv {prefix} cannot be activated: {path} {error.words}",
            "Recreate the venv, or give python_path: then nothing is activated.",
            path=path,
        ) from None
    except OSError:
        return b""
