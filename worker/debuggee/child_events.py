"""Journals `subprocess` events about the processes below a program."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from debug_relay.protocol.secrets import masked_command
from debug_relay.worker.state.log import SessionLog

if TYPE_CHECKING:
    from debug_relay.worker.debuggee.process import Exit

logger = logging.getLogger("debug_relay.worker")


def found(log: SessionLog, pid: int, parent: int | None, command: list[str]) -> None:
    """A process that ran before us, or whose start no event has reported."""
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
    """A process of the program came under the debugger. No event may have reported its start: it is
    a fork server's child, or the program itself has executed another program.
    """
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
    """A process runs on without the debugger."""
    logger.warning("child.released", extra={"fields": {"pid": pid, "why": why}})
    log.journal("subprocess", {"reason": "released", "pid": pid, "why": why})


def ended(log: SessionLog, pid: int, exit: Exit | None) -> None:
    """A child of the program has ended; `exit` is None if its status is unknown."""
    log.journal(
        "subprocess",
        {
            "reason": "exited",
            "pid": pid,
            "exit_code": exit.code if exit else None,
            "signal": exit.signal_name if exit else None,
        },
    )
