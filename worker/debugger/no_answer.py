"""Why a program does not answer its debugger, as far as the kernel shows it from outside."""

from __future__ import annotations

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.system import procfs
from debug_relay.protocol.version import API_PREFIX


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
    )


def note(pid: int | None, timeout: float, is_read: bool = False) -> str:
    """For a list that shows what was known before. `is_read`: with the stacks from outside."""
    if pid is None:
        return (
            f"the program did not answer within {timeout:g} s: its threads are those known before"
        )
    silent = f"process {pid} did not answer within {timeout:g} s: {_reason(pid)}."
    if is_read:
        return f"{silent} Its stacks were read from its memory, from outside."
    return f"{silent} Its threads are those known before. {_next_call(pid)}"
