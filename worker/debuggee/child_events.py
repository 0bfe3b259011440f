"""What is told of the processes below a program: `subprocess` events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from debug_relay.protocol.secrets import masked_command
from debug_relay.worker.state.log import SessionLog

if TYPE_CHECKING:
    from debug_relay.worker.debuggee.process import Exit

logger = logging.getLogger("debug_relay.worker")


def found(log: SessionLog, pid: int, parent: int | None, command: list[str]) -> None:
    """It was there before us, or nobody told of its start."""
    log.journal(
        "subprocess",
        {
            "reason": "found",
            "pid": pid,
            "parent_pid": parent,
            "command": masked_command(command),
            "debugged": False,
        },
    )


def attached(log: SessionLog, pid: int, parent: int | None, command: list[str]) -> None:
    """A process of the program's comes under the debugger, also one of which no start was told: of
    a fork server's, or the program itself, having executed another in its place."""
    log.journal(
        "subprocess",
        {
            "reason": "attached",
            "pid": pid,
            "parent_pid": parent,
            "command": masked_command(command),
        },
    )


def released(log: SessionLog, pid: int, why: str) -> None:
    """It runs on undebugged."""
    logger.warning("child.released", extra={"fields": {"pid": pid, "why": why}})
    log.journal("subprocess", {"reason": "released", "pid": pid, "why": why})


def ended(log: SessionLog, pid: int, exit: Exit | None) -> None:
    """A process that the program has started; with `exit` where the kernel tells how."""
    log.journal(
        "subprocess",
        {
            "reason": "exited",
            "pid": pid,
            "exit_code": exit.code if exit else None,
            "signal": exit.signal_name if exit else None,
        },
    )
