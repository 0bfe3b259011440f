"""The errors for a program that cannot be attached to by its pid, each with what to do next."""

from __future__ import annotations

from typing import Final, NamedTuple

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import threads_are_greenlets
from debug_relay.worker.attach.injection import Injection
from debug_relay.worker.attach.payload import NO_MEMORY, ROOM_BYTES

_BDB: Final = "bdbtracer"  # the tool name of bdb, and so of pdb, from Python 3.14 on


class _Refusal(NamedTuple):
    """The error for one reason; the message has `{pid}` and the payload's own `{words}`."""

    code: Code
    message: str
    suggestion: str


# The reasons with which the injected payload itself refuses.
_REFUSALS: Final = {
    "strangers": _Refusal(
        Code.ATTACH_ALREADY_ATTACHED,
        "Process {pid} is debugged already: {words}",
        "Disconnect the other debugger first, or attach by its port.",
    ),
    "strange": _Refusal(
        Code.ATTACH_UNSUPPORTED,
        "Process {pid} has loaded a debugger that the relay cannot use: {words}",
        "Start the process without that debugger, or with debugpy 1.8, and attach again.",
    ),
    "interpreters": _Refusal(
        Code.ATTACH_UNSUPPORTED,
        "Process {pid} has subinterpreters, with which debugpy cannot trace threads on Python "
        "{words}",
        "Launch it under the debugger, or run it on Python 3.12 or later.",
    ),
    "free-threaded": _Refusal(
        Code.ATTACH_UNSUPPORTED,
        "Process {pid} runs Python {words} without the interpreter's lock (free-threaded), "
        "for which debugpy has no build",
        "Run it on a build of the same Python that has the lock.",
    ),
    "ending": _Refusal(
        Code.ATTACH_UNSUPPORTED,
        "The main thread of process {pid} has ended: its Python starts no more "
        "threads, and the debugger needs threads of its own",
        "Make the main thread wait for the others (join), or launch the program.",
    ),
}


def of_the_program(pid: int, reason: str, words: str) -> RelayError:
    """The error for a reason that the injected payload has reported."""
    if reason == "greenlets":
        return threads_are_greenlets(pid, words)
    if reason == "busy":
        return _debugged_already(pid, words)
    if reason == "taken":
        return _place_is_taken(pid, words)
    refusal = _REFUSALS.get(reason)
    if refusal is None:
        last = words.strip().rpartition("\n")[2][:300]
        return failed(pid, f"its Python could not load the debugger: {last}", words)
    message = refusal.message.format(pid=pid, words=words)
    return RelayError(refusal.code, message, refusal.suggestion, pid=pid)


def _debugged_already(pid: int, session_id: str) -> RelayError:
    return RelayError(
        Code.ATTACH_ALREADY_ATTACHED,
        f"Session {session_id} debugs process {pid} already",
        f"Use that session, or detach it: POST /api/v1/sessions/{session_id}/detach, on the relay "
        "that has it.",
        pid=pid,
        session_id=session_id,
    )


def _place_is_taken(pid: int, tool: str) -> RelayError:
    """`tool` is the name under which another debugger uses `sys.monitoring`."""
    holder = "pdb" if tool == _BDB else tool
    return RelayError(
        Code.ATTACH_ALREADY_ATTACHED,
        f"Process {pid} is debugged already: {holder} has the place for debuggers in "
        f"sys.monitoring, as {tool!r}",
        "Leave that debugger (pdb: clear, then continue), and attach again."
        if tool == _BDB
        else f"Make {holder} free it (sys.monitoring.free_tool_id), and attach again.",
        pid=pid,
    )


def not_injected(pid: int, injection: Injection) -> RelayError:
    output = injection.output()
    if injection.is_traced_by_another:
        return RelayError(
            Code.ATTACH_ALREADY_ATTACHED,
            f"Process {pid} is traced by another debugger already",
            "Detach gdb or strace first, and attach again.",
            pid=pid,
            debugger_output=output,
        )
    if "Operation not permitted" in output:
        return RelayError(
            Code.ATTACH_NOT_PERMITTED,
            f"The kernel does not let this user trace process {pid}",
            pid=pid,
            debugger_output=output,
        )
    if "No symbol" in output:
        return RelayError(
            Code.ATTACH_UNSUPPORTED,
            f"gdb finds no functions of Python in process {pid}: its Python was built without "
            "symbols, or it is not Python",
            "Start the program with python -m debugpy --listen PORT and attach by port.",
            pid=pid,
            debugger_output=output,
        )
    if NO_MEMORY in output:
        return failed(pid, f"the kernel refused it {ROOM_BYTES:,} more bytes of memory", output)
    return failed(pid, f"gdb could not inject, and ended with exit code {injection.code}", output)


def failed(pid: int, why: str, output: str) -> RelayError:
    return RelayError(
        Code.ATTACH_FAILED,
        f"Process {pid} could not be attached to: {why}",
        "The process keeps running. Read debugger_output; try again, or start it under "
        "python -m debugpy --listen PORT and attach by port.",
        pid=pid,
        debugger_output=output[-2000:],
    )


def raised(pid: int, name: str) -> RelayError:
    """The injected code raised before it could report anything itself."""
    reasons = {
        "RecursionError": "it is at the limit of its recursion in C",
        "MemoryError": "it has no memory left, or has reached its memory limit",
    }
    why = reasons.get(
        name,
        "one of its signal handlers raised it at that moment, an audit hook of it refused the "
        "code, or it has replaced exec, compile or __import__",
    )
    return RelayError(
        Code.ATTACH_FAILED,
        f"The main thread of process {pid} raised {name} before the injected code began: {why}",
        "The process keeps running. Try again when it runs other code, or start it under "
        "python -m debugpy --listen PORT and attach by port.",
        pid=pid,
    )


def another_program(pid: int) -> RelayError:
    return RelayError(
        Code.ATTACH_FAILED,
        f"Process {pid} executed another program during the attach; the injected code was "
        "discarded by the exec",
        f"GET /api/v1/processes/{pid} shows what it is now; if that is Python, attach again.",
        pid=pid,
    )


def timed_out(pid: int, timeout: float, pending: bool) -> RelayError:
    more = " Injected code that still starts later will find no relay and end without effect."
    return RelayError(
        Code.ATTACH_TIMEOUT,
        f"Process {pid} did not answer within {timeout:g} s: it may be in C code that "
        "holds the interpreter." + (more if pending else ""),
        f"GET /api/v1/processes/{pid}/stacks shows where its threads are, without its help. "
        "Try again when it runs other code, or with a larger connect_timeout.",
        pid=pid,
        connect_timeout=timeout,
        attach_pending=pending,
    )


def has_ended(pid: int) -> RelayError:
    return RelayError(Code.ATTACH_NO_SUCH_PROCESS, f"Process {pid} has ended", pid=pid)
