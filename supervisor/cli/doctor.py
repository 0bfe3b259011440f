"""`debug-relay doctor`: looks for what would keep the relay from working, and says how to mend it.

Each check is a function that yields findings; it looks at the real thing where that does no harm.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import stat
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from debug_relay.protocol.system import procfs
from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.cli.client import terminal
from debug_relay.supervisor.cli.client.address import Misused, NoRelay, data_directory
from debug_relay.supervisor.cli.client.calls import Refused
from debug_relay.supervisor.cli.client.invocation import Invocation, refusal_text, shown_name
from debug_relay.supervisor.cli.client.parser import Command, Parser
from debug_relay.supervisor.cli.exit_codes import FAILED, OK
from debug_relay.supervisor.config.layers import ConfigError, Loaded, load
from debug_relay.supervisor.processes.listening_ports import port_holder

State = Literal["ok", "warning", "wrong"]
_COLOURS: Final = {
    "ok": terminal.GREEN,
    "warning": terminal.YELLOW,
    "wrong": terminal.RED,
}
_COMMAND_SECONDS: Final = 10.0  # A command that a check runs.
_LITTLE_BYTES: Final = 200 * 1024 * 1024  # A disk with less free space is warned about.
_OLDEST_GDB: Final = 7  # gdb's major version, from which on it takes the options that we give it.


class Finding(NamedTuple):
    about: str
    state: State
    what: str
    mend: str = ""


class _Machine(NamedTuple):
    """The things that the checks look at."""

    invocation: Invocation
    given: Namespace
    loaded: Loaded | ConfigError
    data_dir: Path


def _python(_: _Machine) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("relay", "ok", f"version {VERSION}, Python {version} at {sys.executable}")
    if sys.platform != "linux":
        yield Finding("system", "warning", f"{sys.platform}: attaching by pid needs Linux",
                      "launch programs, or attach by port")  # fmt: skip


def _debugpy(_: _Machine) -> Iterator[Finding]:
    wanted = next(
        (text for text in importlib.metadata.requires("opencode-debug-relay") or ()
         if text.startswith("debugpy")), "debugpy",
    )  # fmt: skip
    try:
        version = importlib.metadata.version("debugpy")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            "debugpy", "wrong", "not installed", f"{sys.executable} -m pip install '{wanted}'"
        )
        return
    is_fit = version.startswith("1.8.") and int(version.split(".")[2]) >= 22
    mend = f"{sys.executable} -m pip install '{wanted}'"
    state: State = "ok" if is_fit else "wrong"
    yield Finding("debugpy", state, version, "" if is_fit else mend)


def _gdb(_: _Machine) -> Iterator[Finding]:
    path = shutil.which("gdb")
    if path is None:
        yield Finding("gdb", "wrong", "not installed: no attaching by pid", _install("gdb"))
        return
    try:
        done = subprocess.run(
            [path, "--nx", "--version"], capture_output=True, timeout=_COMMAND_SECONDS, check=True
        )
        line = done.stdout.decode(errors="replace").splitlines()[0]
        major = int(line.split()[-1].partition(".")[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        yield Finding("gdb", "wrong", f"{path} does not run: {error}", _install("gdb"))
        return
    if major < _OLDEST_GDB:
        yield Finding("gdb", "wrong", f"{line} is too old", _install("gdb"))
    else:
        yield Finding("gdb", "ok", line)


def _install(package: str) -> str:
    for tool, words in (("apt-get", "install"), ("dnf", "install"), ("apk", "add")):
        if shutil.which(tool):
            return f"{'' if os.geteuid() == 0 else 'sudo '}{tool} {words} {package}"
    return f"install {package} with the package manager of this system"


def _ptrace(_: _Machine) -> Iterator[Finding]:
    """Asks the kernel about a process of this user that is not its child, as programs are not."""
    scope = procfs.ptrace_scope()
    said = f" (kernel.yama.ptrace_scope is {scope})" if scope else ""
    pid = _stranger()
    if pid is None:
        yield Finding("ptrace", "warning", f"could not be tried{said}")
        return
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        yield Finding("ptrace", "warning", f"could not be tried{said}")
    except OSError as error:
        if scope in ("1", "2"):
            sudo = "" if os.geteuid() == 0 else "sudo "
            mend = f"{sudo}sysctl kernel.yama.ptrace_scope=0, or run the relay as root"
        elif scope == "3":
            mend = "ptrace is off until the next boot; launch programs, or attach by port"
        else:
            mend = "give the container SYS_PTRACE: docker run --cap-add SYS_PTRACE"
        yield Finding(
            "ptrace", "wrong", f"no attaching by pid: {error.strerror}{said}", mend,
        )  # fmt: skip
    else:
        yield Finding("ptrace", "ok", f"own processes can be attached to{said}")
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, 9)


def _stranger() -> int | None:
    """A process of this user that is no child of this one; it ends by itself soon."""
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(
            ["/bin/sh", "-c", "sleep 5 >/dev/null 2>&1 & echo $!"],
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=True,
            env={"PATH": os.defpath},
        )
        return int(done.stdout)
    return None


def _data(machine: _Machine) -> Iterator[Finding]:
    folder = machine.data_dir
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    facts = place.stat()
    if place != folder:
        if os.access(place, os.W_OK | os.X_OK):
            yield Finding("data", "ok", f"{folder} will be made by the first start")
        else:
            yield Finding("data", "wrong", f"{folder} cannot be made: {place} is not writable",
                          "choose another: --data-dir DIR")  # fmt: skip
            return
    elif not stat.S_ISDIR(facts.st_mode):
        yield Finding("data", "wrong", f"{folder} is no directory", f"mv {folder} {folder}.old")
        return
    elif facts.st_uid != os.geteuid():
        yield Finding("data", "wrong", f"{folder} belongs to uid {facts.st_uid}",
                      "run the relay as that user, or choose another: --data-dir DIR")  # fmt: skip
        return
    elif facts.st_mode & 0o022:
        yield Finding("data", "wrong", f"others may write to {folder}", f"chmod 700 {folder}")
        return
    elif os.statvfs(folder).f_flag & os.ST_RDONLY:
        yield Finding("data", "wrong", f"the file system of {folder} is read-only",
                      "mount it for writing, or choose another: --data-dir DIR")  # fmt: skip
        return
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Finding("data", "wrong", f"{folder} is not writable", f"chmod 700 {folder}")
        return
    else:
        yield Finding("data", "ok", str(folder))
        yield from _set_aside(folder)
    about = os.statvfs(place)
    free = about.f_bavail * about.f_frsize
    mend = f"make room on the disk of {place}, or choose another: --data-dir DIR"
    if free < _LITTLE_BYTES or (about.f_files and not about.f_favail):
        yield Finding("disk", "warning", f"{free // 2**20} MB are free at {place}", mend)
    else:
        yield Finding("disk", "ok", f"{free / 2**30:.1f} GB are free")


def _set_aside(folder: Path) -> Iterator[Finding]:
    """Files that were damaged, and that a relay has moved out of the way."""
    found = [
        *folder.glob("*.corrupt-*"),
        *folder.glob("*/*.corrupt-*"),
        *folder.glob("*/*/*.corrupt-*"),
    ]
    if found:
        yield Finding("data", "warning", f"damaged files set aside, such as {found[0]}",
                      "look whether you miss something of them, and remove them")  # fmt: skip


def _configuration(machine: _Machine) -> Iterator[Finding]:
    if isinstance(machine.loaded, ConfigError):
        for problem in machine.loaded.problems:
            yield Finding("config", "wrong", str(problem), "correct it there")
        return
    for warning in machine.loaded.warnings:
        yield Finding("config", "warning", warning, "remove or mend that file")
    yield Finding("config", "ok", machine.loaded.config_file or "built-in values and environment")


def _relay(machine: _Machine) -> Iterator[Finding]:
    invocation = machine.invocation
    try:
        health = invocation.relay.call("health").data
    except (NoRelay, Misused) as error:
        yield from _port(machine, str(error))
        yield from _left_workers(machine)
        return
    except Refused as refused:
        yield Finding("running", "wrong", refusal_text(refused), "see the relay's log")
        return
    at = invocation.relay.address.shown
    state: State = "ok" if health["status"] == "healthy" else "wrong"
    yield Finding("running", state, f"{at}, version {health['version']}, {health['status']}",
                  "" if state == "ok" else f"see {machine.data_dir}/logs/relay.log")  # fmt: skip
    if health["version"] != VERSION:
        yield Finding("running", "warning", f"it is not of this version ({VERSION})",
                      "restart it: its sessions go on with serve --keep-sessions")  # fmt: skip
    for warning in health.get("warnings") or ():
        yield Finding("running", "warning", warning, f"see {machine.data_dir}/logs/relay.log")
    try:
        yield from _sessions(invocation)
    except Refused as refused:
        yield Finding("sessions", "warning", refusal_text(refused).splitlines()[0],
                      "set OPENCODE_DEBUG_TOKEN; debug-relay token create makes one")  # fmt: skip


def _port(machine: _Machine, missing: str) -> Iterator[Finding]:
    yield Finding("running", "warning", missing, "start one: debug-relay serve")
    if not isinstance(machine.loaded, ConfigError):
        server = machine.loaded.settings.server
        if server.port and (holder := port_holder(server.host, server.port)):
            yield Finding("port", "wrong", f"port {server.port} is taken by {holder}",
                          "stop that, or choose another: debug-relay serve --port 0")  # fmt: skip
        else:
            yield Finding("port", "ok", f"port {server.port} is free" if server.port else "any")


def _left_workers(machine: _Machine) -> Iterator[Finding]:
    """Sessions that live without a relay: the next one adopts them."""
    living = []
    for path in machine.data_dir.glob("run/*/identity.json"):
        with suppress(OSError, ValueError, AttributeError):
            found = json.loads(path.read_text())
            if procfs.is_alive(found.get("pid"), found.get("start_ticks")):
                living.append(path.parent.name)
    if living:
        yield Finding("sessions", "warning", f"{', '.join(living)}: alive without a relay",
                      "debug-relay serve takes them over; alone they end soon")  # fmt: skip


def _sessions(invocation: Invocation) -> Iterator[Finding]:
    stale = []
    items = invocation.sessions()
    for item in items:
        state = invocation.relay.call("get-session", session_id=item["session_id"]).data
        name = shown_name(item)
        if state["status"] == "failed":
            stale.append((name, f"{name} has failed"))
        elif state.get("restored"):
            stale.append((name, f"{name} was restored and has not been restarted"))
        elif state.get("breakpoints_suspended"):
            stale.append((name, f"{name} was stopped for too long and runs on without breakpoints"))
        elif state.get("warning"):
            stale.append((name, f"{name}: {state['warning']}"))
    for name, what in stale:
        yield Finding("sessions", "warning", what, f"debug-relay rm {name}")
    if not stale:
        yield Finding("sessions", "ok", f"{len(items)}, none of them stale")


def _extras(_: _Machine) -> Iterator[Finding]:
    if shutil.which("py-spy") or Path(sys.executable).with_name("py-spy").exists():
        yield Finding("py-spy", "ok", "stacks of running processes can be read")
    else:
        yield Finding("py-spy", "warning", "not installed: no stacks without attaching",
                      f"{sys.executable} -m pip install py-spy")  # fmt: skip


_CHECKS: Final[tuple[Callable[[_Machine], Iterator[Finding]], ...]] = (
    _python, _debugpy, _gdb, _ptrace, _extras, _configuration, _data, _relay,
)  # fmt: skip


def _options(_: Parser) -> None:
    pass


def _doctor(invocation: Invocation, given: Namespace) -> int:
    overrides = {"server.data_dir": given.data_dir} if given.data_dir else {}
    loaded: Loaded | ConfigError
    try:
        loaded = load(overrides, os.environ)
        folder = str(loaded.settings.server.data_dir)
    except ConfigError as error:
        loaded, folder = error, data_directory(given.data_dir)
    machine = _Machine(invocation, given, loaded, Path(folder))
    findings = []
    for check in _CHECKS:
        with invocation.progress(f"checking {check.__name__.strip('_')}"):
            findings += list(check(machine))
    if invocation.as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = terminal.paint(f"{finding.state:<8}", _COLOURS[finding.state])
            terminal.print_text(f"{mark} {finding.about:<9} {terminal.harmless(finding.what)}")
            if finding.mend:
                terminal.print_text(f"{'':<18} → {finding.mend}")
    return FAILED if any(finding.state == "wrong" for finding in findings) else OK


COMMANDS = {
    "doctor": Command(
        _options,
        _doctor,
        "debug-relay doctor",
        "It looks at gdb, ptrace, debugpy, the settings, the data directory, the disk, the port, "
        "the running relay and its sessions. The exit code is 1 if something is wrong.",
    )
}
