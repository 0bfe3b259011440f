"""Why a program does not answer its debugger, as far as the kernel shows it from outside."""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.system import procfs
from debug_relay.protocol.version import API_PREFIX

_MOST_THREADS: Final = 50  # Kernel threads of one process that an error lists.


def is_stopped_by_signal(pid: int) -> bool:
    """Whether a signal such as SIGSTOP has stopped the process: until SIGCONT it runs nothing."""
    return procfs.thread_state(pid, pid) == "T"


def _reason(pid: int) -> str:
    if is_stopped_by_signal(pid):
        return "a signal (SIGSTOP, Ctrl-Z) has stopped it"
    return "one of its threads keeps the interpreter (the GIL) in C, or very many threads are busy"


def _next_call(pid: int) -> str:
    stacks = (
        f"GET {API_PREFIX}/processes/{pid}/stacks?locals=true reads the stacks from outside the "
        "process."
    )
    if is_stopped_by_signal(pid):
        return f"`kill -CONT {pid}` lets it run on. {stacks}"
    return stacks


def no_answer(command: str, timeout: float, pid: int | None) -> RelayError:
    """`pid`: None if the process may be on another machine."""
    if pid is None:
        return RelayError(
            Code.DEBUGPY_TIMEOUT,
            f"The debugger did not answer {command} within {timeout:g} s",
            "The program may be in C code that holds the interpreter: try again. "
            f"{call_of('session-status')} shows its state.",
            command=command,
            timeout=timeout,
        )
    return RelayError(
        Code.DEBUGPY_TIMEOUT,
        f"Process {pid} did not let the debugger's thread answer within {timeout:g} s: "
        f"{_reason(pid)}",
        _next_call(pid),
        command=command,
        timeout=timeout,
        pid=pid,
        os_threads=[_shown(pid, thread) for thread in procfs.threads(pid)[:_MOST_THREADS]],
    )


def note(pid: int | None, timeout: float) -> str:
    """For a list that shows what was known before."""
    if pid is None:
        return (
            f"the program did not answer within {timeout:g} s: its threads are those known before"
        )
    return (
        f"process {pid} did not answer within {timeout:g} s: {_reason(pid)}. Its threads are those "
        f"known before. {_next_call(pid)}"
    )


def _shown(pid: int, thread: int) -> dict[str, object]:
    call = procfs.syscall(pid, thread)
    return {
        "os_thread_id": thread,
        "state": procfs.thread_state(pid, thread),
        "syscall": call.number if call else None,
    }
