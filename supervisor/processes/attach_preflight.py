"""Whether a process can be attached to by its pid; if not, why, and what to do instead.

Every condition that can be checked from outside is checked here, in milliseconds, so that no attach
begins that must fail.
"""

from __future__ import annotations

import errno
import os
import platform
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import threads_are_greenlets
from debug_relay.protocol.secrets import masked_command
from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.users import name_of
from debug_relay.protocol.version import API_PREFIX, FIRST_PYTHON, LAST_PYTHON, PYTHONS
from debug_relay.supervisor.processes.facts import Facts

_MONITORING: Final = (3, 12)  # from here on debugpy uses sys.monitoring
_MACHINES: Final = ("x86_64", "i686")  # debugpy has its attach library for these
# Descriptors that a target must have free: a source, a directory, the connection.
_SPARE_DESCRIPTORS: Final = 4
# A target must be able to write a file of this size: in it the injected code says why it failed.
_ANSWER_BYTES: Final = 16_384
_STRICT: Final = 1
_BY_PORT: Final = "Start it with python -m debugpy --listen 5678, and attach by port."


class Surroundings(Struct):
    """Facts about the relay and its machine that the checks need."""

    own: frozenset[int]  # pids of the relay, its workers and the zygote
    sessions: Mapping[int, str]  # pid → the session that debugs it
    debugpy_dir: str
    has_gdb: bool


def refusal(facts: Facts, around: Surroundings) -> RelayError | None:
    """The first reason not to attach; None if there is none."""
    checks = (_ours, _debugged, _python, _permission, _kernel, _traced, _stopped, _container,
              _version, _machine, _readable, _descriptors, _file_size, _confined,
              _debugger)  # fmt: skip
    return next((found for check in checks if (found := check(facts, around))), None)


def foreseen(facts: Facts) -> RelayError | None:
    """A refusal that the attach itself decides inside the program, guessed from outside. The guess
    is wrong for a program that uses only gevent's thread-local data, so the attach ignores it.
    """
    if not facts.has_patched_threads():
        return None
    return threads_are_greenlets(facts.pid, "gevent")


def unseen(facts: Facts, around: Surroundings) -> RelayError | None:
    """Why the stacks of a process cannot be read, if the reason is in the process."""
    return _python(facts, around) or _permission(facts, around) or _kernel(facts, around)


def no_such_process(pid: int) -> RelayError:
    leader = _leader(pid)
    if leader is not None:
        return RelayError(
            Code.ATTACH_NO_SUCH_PROCESS,
            f"{pid} is not a process but a thread of process {leader}",
            f"Attach to {leader}; {call_of('threads')} lists the threads of a session.",
            pid=pid,
            process=leader,
        )
    return RelayError(
        Code.ATTACH_NO_SUCH_PROCESS,
        f"There is no process {pid}",
        f"GET {API_PREFIX}/processes lists those that can be attached to.",
        pid=pid,
    )


def _leader(pid: int) -> int | None:
    """The process that a thread belongs to: top and htop show thread ids like pids."""
    status = procfs.status(pid)
    return status.process if status is not None and status.process != pid else None


def recycled(facts: Facts, identity: str) -> RelayError:
    return RelayError(
        Code.ATTACH_PID_RECYCLED,
        f"Process {facts.pid} is another process now: {_shown(facts)}",
        f"GET {API_PREFIX}/processes again, and attach with the identity shown there.",
        pid=facts.pid,
        identity=facts.identity,
        identity_asked_for=identity,
    )


def _refuse(code: Code, facts: Facts, message: str, suggestion: str) -> RelayError:
    return RelayError(
        code, message, suggestion, pid=facts.pid, command=masked_command(facts.command)
    )


def _ours(facts: Facts, around: Surroundings) -> RelayError | None:
    if facts.pid not in around.own:
        return None
    return _refuse(
        Code.ATTACH_SELF,
        facts,
        f"Process {facts.pid} is the relay itself or one of its workers",
        f"Choose another: GET {API_PREFIX}/processes lists them.",
    )


def _debugged(facts: Facts, around: Surroundings) -> RelayError | None:
    session = around.sessions.get(facts.pid)
    if session is None:
        return None
    return RelayError(
        Code.ATTACH_ALREADY_ATTACHED,
        f"Session {session} debugs process {facts.pid} already",
        f"Use that session: {call_of('get-session', session)}; or detach it from the process: "
        f"{call_of('detach', session)}.",
        pid=facts.pid,
        session_id=session,
    )


def _python(facts: Facts, around: Surroundings) -> RelayError | None:
    if facts.is_python or not (facts.mapped or facts.executable):
        return None
    return _refuse(
        Code.ATTACH_NOT_PYTHON,
        facts,
        f"Process {facts.pid} is not a CPython process: {_shown(facts)}",
        f"GET {API_PREFIX}/processes lists those that are.",
    )


def _permission(facts: Facts, around: Surroundings) -> RelayError | None:
    """Asks the kernel: opening a process's memory needs the same right as attaching to it."""
    try:
        os.close(os.open(f"/proc/{facts.pid}/mem", os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return no_such_process(facts.pid)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            return None  # the process is ending, or has no memory: the injection will say so
    else:
        return None
    return _refuse(
        Code.ATTACH_NOT_PERMITTED,
        facts,
        f"The kernel does not let {_user(os.geteuid())} trace process {facts.pid} of "
        f"{_user(facts.uid)}",
        _how_to_be_permitted(facts),
    )


def _kernel(facts: Facts, around: Surroundings) -> RelayError | None:
    """A thread of the kernel looks like a process without a program. Root may open its memory."""
    if facts.mapped or facts.executable or facts.command:
        return None
    return _refuse(
        Code.ATTACH_NOT_PYTHON,
        facts,
        f"Process {facts.pid} has no program: it belongs to the kernel",
        f"GET {API_PREFIX}/processes lists those that are Python.",
    )


def _how_to_be_permitted(facts: Facts) -> str:
    if facts.uid != os.geteuid():
        return f"Run a relay as {_user(facts.uid)} or root. {_BY_PORT}"
    scope = procfs.ptrace_scope()
    if scope in ("1", "2"):
        return f"kernel.yama.ptrace_scope is {scope}: sysctl kernel.yama.ptrace_scope=0 (as root)."
    if scope == "3":
        return f"kernel.yama.ptrace_scope is 3 until the next boot. {_BY_PORT}"
    return f"Give the relay CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE). {_BY_PORT}"


def _traced(facts: Facts, around: Surroundings) -> RelayError | None:
    if not facts.tracer:
        return None
    return _refuse(
        Code.ATTACH_ALREADY_ATTACHED,
        facts,
        f"Process {facts.pid} is traced by process {facts.tracer} already",
        f"End that one (gdb, strace) first: ps -p {facts.tracer} shows what it is.",
    )


def _stopped(facts: Facts, around: Surroundings) -> RelayError | None:
    if facts.state not in "Tt":
        return None
    return _refuse(
        Code.ATTACH_STOPPED,
        facts,
        f"Process {facts.pid} is stopped by a signal",
        f"kill -CONT {facts.pid} resumes it; then attach.",
    )


def _container(facts: Facts, around: Surroundings) -> RelayError | None:
    pid = facts.pid
    shares_namespaces = all(procfs.is_in_our_namespace(pid, kind) for kind in ("net", "pid"))
    if shares_namespaces and _sees(pid, around.debugpy_dir):
        return None
    inner = facts.inner_pids[-1]
    mapping = f'[{{"local": "HERE", "remote": "{facts.cwd() or "/app"}"}}]'
    return _refuse(
        Code.ATTACH_OTHER_NAMESPACE,
        facts,
        f"Process {facts.pid} lives in another container or namespace",
        f"There: python -m debugpy --listen 0.0.0.0:5678 --pid {inner} (5678 published). Here: "
        f'{call_of("attach")} {{"host": "127.0.0.1", "port": 5678, "path_mappings": {mapping}}}.',
    )


def _sees(pid: int, path: str) -> bool:
    """Whether the process finds the same file at this path as we do."""
    with suppress(OSError):
        return os.path.samefile(f"/proc/{pid}/root{path}", path)
    return False


def _version(facts: Facts, around: Surroundings) -> RelayError | None:
    minor = facts.minor()
    if minor is None:
        what = "of a version that its files do not reveal"
    else:
        if FIRST_PYTHON <= _numbers(facts) <= LAST_PYTHON and not minor[1]:
            return None
        free = " without the interpreter's lock (free-threaded)"
        what = minor[0] + (free if minor[1] else "")
    return _refuse(
        Code.ATTACH_UNSUPPORTED,
        facts,
        f"Process {facts.pid} runs Python {what}",
        f"Python {PYTHONS} can be attached to. Launch it under another interpreter.",
    )


def _machine(facts: Facts, around: Surroundings) -> RelayError | None:
    what = None
    if platform.machine() not in _MACHINES:
        what = f"debugpy has no library for attaching on {platform.machine()}"
    elif any("/ld-musl" in path for path in facts.mapped):
        what = "it runs on musl, and debugpy's library for attaching needs glibc"
    elif _elf(f"/proc/{facts.pid}/exe") != _elf("/proc/self/exe"):
        what = "it is built for another architecture than the relay"
    if what is None:
        return None
    return _refuse(
        Code.ATTACH_UNSUPPORTED,
        facts,
        f"Process {facts.pid} cannot be attached to: {what}",
        _BY_PORT,
    )


def _elf(path: str) -> tuple[bytes, bytes]:
    """The class and machine of an ELF file, from its header."""
    with suppress(OSError), open(path, "rb") as file:
        head = file.read(20)
        return head[4:5], head[18:20]
    return b"", b""


def _readable(facts: Facts, around: Surroundings) -> RelayError | None:
    """The target's user must be able to read debugpy; our own code is injected as a whole."""
    closed = None if facts.uid in (0, os.geteuid()) else _closed_to_others(around.debugpy_dir)
    if closed is None:
        return None
    return _refuse(
        Code.ATTACH_NOT_PERMITTED,
        facts,
        f"Process {facts.pid} runs as {_user(facts.uid)}, who cannot read {around.debugpy_dir}",
        f"chmod o+rx {closed}, or install the relay where everybody can read it.",
    )


def _closed_to_others(path: str) -> str | None:
    for part in (path, *map(str, Path(path).parents)):
        if os.stat(part).st_mode & (stat.S_IROTH | stat.S_IXOTH) < stat.S_IXOTH:
            return part
    return None


def untraceable(facts: Facts) -> RelayError | None:
    """Refuses `settrace` from 3.12 on: there debugpy cannot set it in threads that run already,
    while `auto` reaches even coroutines that run already. Older Pythons always use settrace.
    """
    if _numbers(facts) < _MONITORING:
        return None
    return _refuse(
        Code.ATTACH_UNSUPPORTED,
        facts,
        f"Process {facts.pid} runs Python {facts.version()}, where settrace does not reach threads "
        "that run already",
        'Attach with tracing "auto": breakpoints in coroutines that run already are hit as well.',
    )


def _numbers(facts: Facts) -> tuple[int, ...]:
    minor = facts.minor()
    return tuple(int(part) for part in minor[0].split(".")) if minor else ()


def _descriptors(facts: Facts, around: Surroundings) -> RelayError | None:
    counted = facts.descriptors()
    if counted is None or counted[1] - counted[0] >= _SPARE_DESCRIPTORS:
        return None
    return _refuse(
        Code.ATTACH_UNSUPPORTED,
        facts,
        f"Process {facts.pid} has {counted[0]} of at most {counted[1]} descriptors open; a "
        f"debugger needs {_SPARE_DESCRIPTORS} for a moment",
        f"prlimit --pid {facts.pid} --nofile={counted[0] + 64}: gives it more while it runs.",
    )


def _file_size(facts: Facts, around: Surroundings) -> RelayError | None:
    """If the process may write no file, the injected code cannot answer, or SIGXFSZ ends it."""
    limit = facts.file_size()
    if limit is None or limit >= _ANSWER_BYTES:
        return None
    return _refuse(
        Code.ATTACH_UNSUPPORTED,
        facts,
        f"Process {facts.pid} may write no file of more than {limit} bytes, not even in memory; a "
        f"debugger needs {_ANSWER_BYTES} to answer",
        f"prlimit --pid {facts.pid} --fsize=unlimited gives it more while it runs.",
    )


def _confined(facts: Facts, around: Surroundings) -> RelayError | None:
    if facts.seccomp != _STRICT:
        return None
    return _refuse(
        Code.ATTACH_UNSUPPORTED,
        facts,
        f"Process {facts.pid} has given up all system calls but read and write (seccomp): the "
        "kernel would end it",
        "Launch it under the debugger, and look before it confines itself.",
    )


def _debugger(facts: Facts, around: Surroundings) -> RelayError | None:
    if around.has_gdb:
        return None
    return _refuse(
        Code.ATTACH_NO_DEBUGGER,
        facts,
        "gdb is needed to attach by pid, and is not on the relay's PATH",
        f"apt install gdb (or dnf install gdb), and start the relay again. {_BY_PORT}",
    )


def _shown(facts: Facts) -> str:
    text = " ".join(masked_command(facts.command)) or facts.name
    return text if len(text) <= 200 else text[:200] + "…"


def _user(uid: int) -> str:
    name = name_of(uid)
    return f"uid {uid}" if name is None else f"user {name}"
