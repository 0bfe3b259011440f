"""Finds everything that the launch of a native program needs, before anything is started."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.blueprint import ShownLaunch, given_fields, shown_launch
from debug_relay.protocol.models.fields import TerminalSize
from debug_relay.protocol.models.program import Launch
from debug_relay.protocol.models.sessions import Program
from debug_relay.worker.debuggee.environment import terminal
from debug_relay.worker.debuggee.launch_plan import directory, existing_file, program_environment
from debug_relay.worker.joining.listener import JoinListener
from debug_relay.worker.native import entry_hold
from debug_relay.worker.state.settings import Settings

Adapter = Literal["gdbserver", "lldb-server"]
# The Debian package of each native server.
_PACKAGES: Final[Mapping[Adapter, str]] = {"gdbserver": "gdbserver", "lldb-server": "lldb"}
# The debugger that connects to each.
CLIENTS: Final[Mapping[Adapter, str]] = {"gdbserver": "gdb", "lldb-server": "lldb"}


class NativePlan(Struct):
    """Everything that the launch of a native program needs; all of it exists."""

    adapter: Adapter
    server: str  # the path of the native server
    target: str
    args: list[str]
    cwd: str
    env: dict[str, str]
    terminal: TerminalSize | None
    keep_children: bool
    waits: bool  # at its first instruction, for a debugger
    program: Program
    arguments: dict[str, Any]  # the fields that were given
    shown: ShownLaunch


class NativePlanner:
    def __init__(self, settings: Settings, joining: JoinListener) -> None:
        self._settings = settings
        self._joining = joining

    async def plan(self, params: Launch, adapter: Adapter) -> NativePlan:
        assert params.program is not None  # validation has refused the launch otherwise
        root = self._settings.config.project_root
        given_cwd = directory(params, root) if params.cwd else None
        target = existing_file(params.program, given_cwd, root, field="program")
        _require_executable(target)
        cwd = given_cwd or directory(params, root)
        server = await asyncio.to_thread(find_server, adapter)
        env = await program_environment(params, self._settings, cwd, None, self._joining)
        waits = params.wait_for_debugger
        if waits:
            entry_hold.require()
        arguments = given_fields(params)
        shown = await asyncio.to_thread(shown_launch, arguments)
        return NativePlan(
            adapter=adapter,
            server=server,
            target=target,
            args=params.args,
            cwd=cwd,
            env=env,
            terminal=terminal(params),
            keep_children=params.keep_children,
            waits=entry_hold.is_possible() if waits is None else waits,
            program=Program(
                adapter=adapter, program=target, args=shown.args, cwd=cwd, env=shown.env
            ),
            arguments=arguments,
            shown=shown,
        )


def find_server(adapter: Adapter) -> str:
    """The native server on PATH; of several versions of `lldb-server` the newest."""
    found = shutil.which(adapter)
    if found is not None:
        return found
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    versions = [
        (int(number.group(1)), path)
        for folder in folders
        for path in glob.glob(os.path.join(glob.escape(folder), f"{adapter}-*"))
        if (number := re.search(r"-(\d+)$", path)) and os.access(path, os.X_OK)
    ]
    if versions:
        return max(versions)[1]
    package = _PACKAGES[adapter]
    raise RelayError(
        Code.ATTACH_NO_DEBUGGER,
        f"{adapter} debugs this program, and it is not installed on the relay's machine",
        f"Install it, on Debian and Ubuntu with: apt-get install {package}. Then send the same "
        "call again.",
        adapter=adapter,
        package=package,
    )


def _require_executable(path: str) -> None:
    if os.path.isfile(path) and os.access(path, os.X_OK):
        return
    what = "is not a file" if not os.path.isfile(path) else "is not executable"
    raise RelayError(
        Code.LAUNCH_SCRIPT_NOT_FOUND,
        f"The program {path} {what}",
        "Give the path of an executable file; chmod +x makes a file executable. A Python script "
        "needs no adapter: send it as script.",
        program=path,
    )
