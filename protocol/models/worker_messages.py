"""Params and results that only supervisor and worker exchange; callers see none of them."""

from __future__ import annotations

from debug_relay.protocol.models.fields import Params, Result, SessionId, SessionParams, Time
from debug_relay.protocol.models.sessions import Blueprint, EndReason, SessionConfig, SessionState
from debug_relay.protocol.state import State


class EndSession(SessionParams, kw_only=True):
    """Asks the worker to end the session and then itself."""

    terminate_debuggee: bool | None = None
    force: bool = False
    reason: EndReason = "terminated"


class Retire(SessionParams, kw_only=True):
    """Asks the worker of an ended session to end."""

    pipes_taken: bool = False  # the supervisor reads what kept processes print


class Retired(Result, kw_only=True):
    """The answer: whether the worker ends now, and what the session's next worker starts with,
    secrets included.
    """

    retired: bool
    blueprint: Blueprint | None = None
    runtime_seconds: float = 0.0
    # If not retired: the worker's descriptors of pipes that the supervisor has to take before.
    pipes: list[int] = []


class WorkerParams(Params, kw_only=True):
    """The parameters of a worker: one JSON document on an inherited descriptor."""

    session_id: SessionId
    session_dir: str  # in the run directory: rings, socket, identity
    record_dir: str  # in the data directory: what survives a reboot
    breakpoints_dir: str  # the saved breakpoints of all projects
    name: str
    created_at: Time
    created_by: str | None
    config: SessionConfig
    debugpy_dir: str
    # The folder in which programs keep the debugger's compiled code, by kind of interpreter.
    bytecode: str
    interpreters_dir: str  # workers cache there the facts about interpreters
    output_max_bytes: int
    events_max: int
    request_timeout: float
    launch_timeout: float
    evaluate_timeout: float
    orphan_timeout: float
    python_default: str | None = None
    restore_breakpoints: bool = False
    # The blueprint that the session starts from: of an import, a clone, or its own before a reboot.
    blueprint: Blueprint | None = None
    restored: bool = False
    previous_status: State | None = None
    first_seq: int = 1
    stop_id: int = 0  # the session's last stop
    # The state at the end of an ended session, so that a new worker continues where the retired one
    # left off.
    ended: SessionState | None = None
    runtime_seconds: float = 0.0
