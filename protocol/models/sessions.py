"""Sessions: parameters, results, and the public state that the worker keeps."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from debug_relay.protocol.models.fields import (
    LABEL_FILTER,
    Adapter,
    Directory,
    HeldSeconds,
    Json,
    Labels,
    Limit,
    Location,
    Offset,
    Params,
    PauseBudget,
    PythonPath,
    Result,
    Seconds,
    SessionParams,
    Time,
    TimeoutMinutes,
    Venv,
    always,
)
from debug_relay.protocol.models.limits import NO_LIMITS, LimitChanges, Limits, PassedLimit
from debug_relay.protocol.state import State

EndReason = Literal[
    "target_exited", "terminated", "timeout", "limit", "detached", "target_lost", "crashed",
    "shutdown",
]  # fmt: skip
StopReason = Literal["breakpoint", "step", "exception", "pause", "entry"]


class ListSessions(Params, kw_only=True):
    """List sessions, newest first."""

    status: Annotated[State | None, Meta(description="Only sessions in this state.")] = None
    label: (
        Annotated[
            str,
            Meta(pattern=LABEL_FILTER, description="`key=value`", examples=["team=search"]),
        ]
        | None
    ) = None
    offset: Offset = 0
    limit: Limit = 100


class PatchSession(SessionParams, kw_only=True):
    """Change the settings that may be changed while the session lives."""

    name: Annotated[str, Meta(max_length=255, description="Any name.")] | UnsetType = UNSET
    project_root: Directory | UnsetType = UNSET
    python_path: PythonPath | UnsetType = UNSET
    venv: Venv | UnsetType = UNSET
    stop_on_entry: (
        Annotated[bool, Meta(description="Stop at the first line of the next launch.")] | UnsetType
    ) = UNSET
    stop_all: Annotated[bool, Meta(description="A stop of one thread stops all.")] | UnsetType = (
        UNSET
    )
    just_my_code: (
        Annotated[bool, Meta(description="Step and stop in the user's code only.")] | UnsetType
    ) = UNSET
    restore_breakpoints: (
        Annotated[bool, Meta(description="Load those saved for `project_root`.")] | UnsetType
    ) = UNSET
    timeout_minutes: TimeoutMinutes | UnsetType = UNSET
    idle_timeout: Seconds | UnsetType = UNSET
    max_lifetime: Seconds | UnsetType = UNSET
    pause_budget: PauseBudget | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    limits: (
        Annotated[
            LimitChanges,
            Meta(description="Limits on the process tree; they also apply to the running program."),
        ]
        | UnsetType
    ) = UNSET
    breakpoints_suspended: (
        Annotated[bool, Meta(description="False enables suspended breakpoints again.")] | UnsetType
    ) = UNSET


class DeleteSession(SessionParams, kw_only=True):
    """End a session. A launched program ends with it; an attached one keeps running."""

    force: Annotated[bool, Meta(description="Do not wait for the program to end by itself.")] = (
        False
    )
    terminate_debuggee: Annotated[
        bool | None,
        Meta(description="Whether the program ends too; default: only if it was launched."),
    ] = None


class TakeLease(SessionParams, kw_only=True):
    """Become the only caller that may drive this session."""

    holder: (
        Annotated[
            str,
            Meta(min_length=1, max_length=255, description="Who drives; default: the caller."),
        ]
        | None
    ) = None
    ttl: Annotated[
        float, Meta(gt=0, le=86400, description="Seconds until it lapses unless renewed.")
    ] = 60
    take_over: Annotated[bool, Meta(description="Take the lease from its present holder.")] = False


class Lease(Result, kw_only=True):
    """The session's driver and the end of the lease; both are null if any caller may drive."""

    holder: str | None = always(None)
    expires_at: Time | None = None
    since: Annotated[Time | None, Meta(description="When the driver took it.")] = None
    front: Annotated[
        str | None, Meta(description="Through which a person drives; null if an agent does.")
    ] = None
    key_id: Annotated[
        str | None,
        Meta(description="The beginning of the SHA-256 of the `X-Lease-Key` that it belongs to."),
    ] = None


def key_id(key: str) -> str | None:
    """The part of `Caller.key` that everybody may see: holders recognise their own lease by it."""
    return key[:8] or None


MissingField = Literal["args", "code", "python_args", "stdin_inputs"]


_LIFETIME_SECONDS: Final = 14400.0  # A session ends this long after its last call.
# An attached program stays paused this long without a call.
_PAUSE_BUDGET_SECONDS: Final = 300.0


class SessionConfig(Result, kw_only=True):
    """How the session was created."""

    project_root: str | None = always(None)
    python_path: str | None = always(None)
    venv: str | None = None
    stop_on_entry: bool = always(False)
    stop_all: bool = True
    just_my_code: bool = False
    timeout_minutes: int | float = 60
    max_lifetime: float = _LIFETIME_SECONDS
    pause_budget: float = _PAUSE_BUDGET_SECONDS
    labels: dict[str, str] = {}
    limits: Limits = NO_LIMITS

    def __post_init__(self) -> None:
        # JSON leaves out only the very object that is the default.
        if self.limits == NO_LIMITS:
            self.limits = NO_LIMITS
        if self.max_lifetime == _LIFETIME_SECONDS:
            self.max_lifetime = _LIFETIME_SECONDS
        if self.pause_budget == _PAUSE_BUDGET_SECONDS:
            self.pause_budget = _PAUSE_BUDGET_SECONDS


def idle_limit(status: State, config: SessionConfig) -> float:
    """Seconds without a call after which the session ends; 0 means never."""
    idle = config.timeout_minutes * 60.0
    if status is State.RUNNING and idle:
        # A running program postpones expiry.
        return max(idle, config.max_lifetime) if config.max_lifetime else 0.0
    return idle


def _no_args() -> list[str]:
    return []


def _no_env() -> dict[str, str | None]:
    return {}


class Program(Result, kw_only=True):
    """The program or target that is debugged."""

    adapter: Adapter = "debugpy"
    script: str | None = always(None)
    module: str | None = always(None)
    program: str | None = None  # the executable file of a native program
    args: list[str] = field(default_factory=_no_args)
    cwd: str | None = always(None)
    env: dict[str, str | None] = field(default_factory=_no_env)
    python_path: str | None = None
    python_version: str | None = None
    pid: int | None = None
    attached: bool = False
    host: str | None = None
    port: int | None = None

    @property
    def is_native(self) -> bool:
        """Whether a debugger of native programs debugs it, and not the relay."""
        return self.adapter != "debugpy"

    @property
    def target(self) -> str | None:
        """The file or module that runs."""
        return self.program or self.script or self.module


class ExceptionInfo(Result, kw_only=True):
    """The exception at which the program is stopped."""

    type: str
    full_type_name: str = ""
    message: str
    traceback: str | None = None  # the outermost frame first
    break_mode: Literal["always", "unhandled", "userUnhandled"] = "always"


class DebuggerAddress(Result, kw_only=True):
    """The port on which IDEs and debuggers join the session, on the relay's own machine."""

    adapter: Adapter  # the protocol that is spoken there: with debugpy DAP, as debugpy speaks it
    uri: str
    token: str | None  # only for callers with `sessions:write`, and only in `get-session`
    clients: list[str] = []  # the IDEs or the debugger that have joined


class SessionState(Result, kw_only=True):
    """Everything public about one session."""

    session_id: str
    name: str
    status: State
    stop_reason: StopReason | None = always(None)
    stop_id: int = 0
    created_at: Time
    expires_at: Time | None = always(None)
    config: SessionConfig
    program: Program | None = always(None)
    child_pids: list[int] = []  # the children that are debugged with the program
    current_location: Location | None = always(None)
    stopped_thread_id: int | None = always(None)
    stopped_threads: list[int] = []
    breakpoint_count: int = always(0)
    exception: ExceptionInfo | None = always(None)
    exit_code: int | None = None
    signal: str | None = None
    end_reason: EndReason | None = None
    passed_limit: PassedLimit | None = None  # set with end_reason `limit`
    waiting_for_input: bool = False
    prompt: str | None = None
    warning: str | None = None
    held_seconds: HeldSeconds = 0
    breakpoints_suspended: bool = False
    created_by: str | None = None
    restored: bool = False
    previous_status: State | None = None
    missing_env: list[str] = []
    # fields of the launch that hid a secret; `restart` must give them
    missing_fields: list[str] = []
    worker_unresponsive: bool = False
    worker_signal: str | None = None  # the signal that ended its worker, with end_reason `crashed`
    worker_exit_code: int | None = None  # or the worker's exit code; both are null if it is unknown
    # what could not be written to a full disk; the session continues
    disk_trouble: str | None = None
    lease: Lease | None = None  # the caller that alone may drive it
    debugger: DebuggerAddress | None = None  # null while the session has no worker


class SessionStatus(Result, kw_only=True):
    """The few fields that a poller needs."""

    session_id: str
    status: State
    stop_reason: StopReason | None = None
    stop_id: int
    current_location: Location | None = None
    stopped_thread_id: int | None = None
    stopped_threads: list[int] = []
    exit_code: int | None = None
    signal: str | None = None
    end_reason: EndReason | None = None
    passed_limit: PassedLimit | None = None
    waiting_for_input: bool = False
    prompt: str | None = None
    warning: str | None = None
    expires_at: Time | None = None
    held_seconds: HeldSeconds = 0
    worker_unresponsive: bool = False


class SessionItem(Result, kw_only=True):
    """A session in a list."""

    session_id: str
    name: str
    status: State
    stop_reason: StopReason | None = None
    created_at: Time
    expires_at: Time | None = None
    program: str | None
    labels: dict[str, str] = {}
    created_by: str | None = None
    warning: str | None = None
    current_location: Location | None = None
    exit_code: int | None = None
    lease: Lease | None = None


class SessionList(Result, kw_only=True):
    items: list[SessionItem]
    total: int
    offset: int
    limit: int
    has_more: bool


class SessionDeleted(Result, kw_only=True):
    session_id: str
    final_status: State
    exit_code: int | None
    runtime_seconds: float
    deleted: bool = always(True)


class Pong(Result, kw_only=True):
    """The session was touched."""

    session_id: str
    status: State
    expires_at: Time | None = None
    warning: str | None = None


class ProcessUse(Result, kw_only=True):
    """One process of the tree."""

    pid: int
    ppid: int
    command: str
    state: str
    start_time: float  # seconds since 1970, like psutil's create_time
    cpu_seconds: float
    memory_bytes: int  # shared memory counts in proportion
    resident_bytes: int  # shared memory counts in full
    threads: int
    descriptors: int | None = None  # None if the kernel does not permit reading them


class LimitUse(Result, kw_only=True):
    """One limit; `allowed` 0 means no limit."""

    allowed: int | float
    used: int | float
    share: float | None = None  # used / allowed


class Resources(Result, kw_only=True):
    """The resources that the session's process tree uses."""

    session_id: str
    status: State
    cpu_seconds: float
    memory_bytes: int
    processes: list[ProcessUse]
    limits: dict[str, LimitUse]
    passed_limit: PassedLimit | None = None
    note: str | None = None  # why a value is unknown


class Blueprint(Result, kw_only=True):
    """Everything of a session except its state: the contents of an export, and what clones and
    restored sessions are made from.
    """

    name: str
    config: SessionConfig
    # The fields that the last launch gave, or None.
    program: dict[str, Json] | None = None
    # Environment variables of the launch whose values look secret; the values are not here.
    missing_env: list[str] = []
    # Fields of the launch in which a secret is masked.
    missing_fields: list[str] = []
    # Breakpoints as callers requested them; with ids if the new session keeps them.
    breakpoints: list[dict[str, Json]] = []
    next_breakpoint: int = 1
    exception_breakpoints: dict[str, Json] | None = None
    watches: list[dict[str, Json]] = []
