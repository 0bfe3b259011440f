"""The twelve commands of the protocol, each done by operations of a relay."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.supervisor.cli.client.address import NoRelay
from debug_relay.supervisor.cli.client.calls import Relay
from debug_relay.supervisor.cli.stdio import messages
from debug_relay.supervisor.cli.stdio.follower import Follower
from debug_relay.supervisor.cli.stdio.messages import Command, Place, event
from debug_relay.supervisor.cli.stdio.program import CommandFailed, ProgramState
from debug_relay.supervisor.cli.stdio.session_calls import SessionCalls
from debug_relay.supervisor.cli.stdio.values import all_shown, cut

_MOST: Final = 1000  # Variables, or frames, in one event.
_STEPS: Final = {"stepInto": "step-into", "stepOver": "step-over", "stepOut": "step-out"}


class Options(Struct, frozen=True):
    """The command line's part: which session, and how to launch the program."""

    session: str | None = None  # a session of a running relay, which stays
    python_path: str | None = None
    args: list[str] = []
    just_my_code: bool = False


class Commands:
    def __init__(
        self,
        connect: Callable[[], Relay],
        options: Options,
        program: ProgramState,
        emit: Callable[[bytes], None],
        broken: Callable[[str | None], None],
    ) -> None:
        self._calls = SessionCalls(connect)
        self._call = self._calls.call
        self._options = options
        self._program = program
        self._emit = emit
        self._broken = broken
        self._launch: dict[str, Any] = {}
        self.terminated = False
        self._handlers: dict[str, Callable[[Any], None]] = {
            "initialize": self._initialize,
            "start": self._start,
            "continue": partial(self._run, "continue", "continue"),
            **{name: partial(self._run, "step", step) for name, step in _STEPS.items()},
            "setBreakpoint": self._set_breakpoint,
            "clearBreakpoint": self._clear_breakpoint,
            "getVariables": self._get_variables,
            "getStackTrace": self._get_stack_trace,
            "evaluate": self._evaluate,
            "terminate": self._terminate,
        }

    def perform(self, command: Command) -> None:
        """Does the command and sends its answer, or the error event."""
        try:
            self._handlers[command.name](command.params)
        except CommandFailed as failure:
            self._emit(messages.error_event(str(failure), command=command.name))
        except RelayError as error:
            self._emit(
                messages.error_event(
                    error.message, command=command.name, location=_syntax_error_place(error)
                )
            )

    def leave(self) -> None:
        """Ends the session that was made in a running relay; one that was joined stays, and its
        lease is given back.
        """
        if self._calls.session_id is None:
            return
        if self._options.session is None:
            self._call("delete-session", force=True)
        elif self._program.now in ("running", "paused"):
            self._call("drop-lease")

    # -- the session

    def _initialize(self, params: messages.Initialize) -> None:
        if self._program.now != "new":
            raise CommandFailed("Cannot initialize: it is initialized already")
        folder = os.path.abspath(params.working_dir or os.path.dirname(params.file) or ".")
        file = os.path.normpath(os.path.join(folder, params.file))
        if not os.path.isdir(folder):
            raise CommandFailed(f"The directory {folder} does not exist")
        if os.path.isdir(file):
            raise CommandFailed(f"{file} is a directory, not a Python file")
        if not os.path.isfile(file):
            raise CommandFailed(f"The file {file} does not exist")
        self._launch = {
            "script": file,
            "cwd": folder,
            "args": params.args or self._options.args,
            "env": params.env,
            "python_path": params.python_path or self._options.python_path,
            "just_my_code": self._options.just_my_code,
            "stop_on_exception": "uncaught",
        }
        status: dict[str, Any] | None = None
        shared = self._options.session
        if shared is None:
            state = self._call("create-session", project_root=folder)
        else:
            state = self._call("get-session", session_id=shared)
        self._calls.session_id = state["session_id"]
        follower = Follower(
            self._calls,
            self._program,
            self._emit,
            self._broken,
            shared is not None,
        )
        if shared is not None:
            follower.skip()
            status = self._call("session-status")
        self._program.becomes("ready", lambda: self._emit(event("initialized", file=file)))
        if status is not None:
            follower.tell_present_state(status)
        follower.start()

    def _start(self, _params: messages.Nothing) -> None:
        state = self._program.settle()
        if state == "paused":
            self._resume("start", "continue", announce=True)
            return
        if state == "running":
            raise CommandFailed("Cannot start: program is running")
        self._program.require("start", "ready")
        breakpoints = self._call("list-breakpoints").get("breakpoints", ())
        self._program.resumes(announce=True)
        try:
            self._call("launch", **self._launch, stop_on_entry=not breakpoints, wait=0)
        except RelayError:
            self._program.becomes("ready")
            raise
        self._program.has_resumed()
        self._end_input()

    def _end_input(self) -> None:
        """The protocol has no command for input: a program that reads gets the end of its input."""
        try:
            self._call("input", eof=True)
        except RelayError as error:
            if error.code is not Code.INVALID_SESSION_STATE:
                raise  # otherwise the program has ended already

    def _terminate(self, _params: messages.Nothing) -> None:
        if self._program.now in ("running", "paused"):
            self._end_program()
            # It may have ended by itself in the meantime: `exited` is sent first then.
            self._program.wait_for_end()
        self._emit(event("terminated"))
        self.terminated = True

    def _end_program(self) -> None:
        self._program.terminating = True
        try:
            self._call("terminate")
        except RelayError as error:
            if error.code is not Code.INVALID_SESSION_STATE:
                self._program.terminating = False
                raise

    def end_early(self) -> None:
        """Ends the program from another thread, so that the command that is being done ends."""
        self._program.hurry()
        if self._program.now in ("running", "paused"):
            with suppress(RelayError, NoRelay):  # the command `terminate` says what is wrong
                self._end_program()

    # -- running

    def _run(self, what: str, operation: str, _params: messages.Nothing) -> None:
        self._resume(what, operation)

    def _resume(self, what: str, operation: str, announce: bool = False) -> None:
        self._program.require_paused(what)
        self._program.resumes(announce)
        try:
            self._call(operation, wait=0)
        except RelayError as error:
            if error.code is not Code.INVALID_SESSION_STATE:
                self._program.becomes("paused")
            raise
        self._program.has_resumed()

    def _set_breakpoint(self, params: messages.Breakpoint) -> None:
        self._program.require("set a breakpoint", "ready", "running", "paused", "ended")
        with self._program.no_stop_is_sent():
            self._set_and_answer(params)

    def _set_and_answer(self, params: messages.Breakpoint) -> None:
        entry = self._call(
            "set-breakpoints", file=self._absolute(params.file), line=params.line, must_exist=True
        )["breakpoints"][0]
        if not entry.get("verified"):
            # The protocol has no way to say that a breakpoint is set and never hit.
            self._call("delete-breakpoint", breakpoint_id=entry["id"])
            raise CommandFailed(
                " ".join(filter(None, (entry.get("message"), entry.get("suggestion"))))
            )
        self._emit(
            event(
                "breakpointSet",
                file=params.file,
                line=params.line,
                id=int(entry["id"].removeprefix("bp_")),
            )
        )

    def _clear_breakpoint(self, params: messages.Breakpoint) -> None:
        self._program.require("clear a breakpoint", "ready", "running", "paused", "ended")
        path = os.path.realpath(self._absolute(params.file))
        for entry in self._call("list-breakpoints").get("breakpoints", ()):
            file = (entry.get("source") or {}).get("path")
            if file and os.path.realpath(file) == path and entry.get("line") == params.line:
                self._call("delete-breakpoint", breakpoint_id=entry["id"])
                self._emit(event("breakpointCleared", file=params.file, line=params.line))
                return
        raise CommandFailed(f"There is no breakpoint at {params.file}:{params.line}")

    def _absolute(self, file: str) -> str:
        return os.path.normpath(os.path.join(self._launch["cwd"], file))

    # -- looking

    def _get_variables(self, params: messages.OneFrame) -> None:
        frame = params.frame_index
        self._program.require_paused("get variables")
        listed = self._call("frame-variables", frame_id=frame, count=_MOST).get("variables", ())
        self._emit(event("variables", frameIndex=frame, variables=all_shown(listed)))

    def _get_stack_trace(self, _params: messages.Nothing) -> None:
        self._program.require_paused("get the stack trace")
        frames = self._call("stacktrace", levels=_MOST).get("frames", ())
        self._emit(
            event(
                "stackTrace",
                frames=[
                    {
                        "index": frame["id"],
                        "function": frame["name"],
                        "file": frame["source"]["path"],
                        "line": frame["line"],
                        "column": frame["column"],
                    }
                    for frame in frames
                ],
            )
        )

    def _evaluate(self, params: messages.Evaluate) -> None:
        self._program.require_paused("evaluate")
        answer = self._call(
            "evaluate", expression=params.expression, frame_id=params.frame_index, context="repl"
        )
        if answer.get("error"):
            raise CommandFailed(answer["error"])
        result = answer.get("result")
        self._emit(
            event(
                "evaluateResult",
                expression=params.expression,
                result="None" if result is None else cut(result),
                type=answer.get("type") or "NoneType",
            )
        )


def _syntax_error_place(error: RelayError) -> Place | None:
    if error.code is not Code.LAUNCH_SYNTAX_ERROR:
        return None
    details = error.details
    return Place(details["file"], details.get("line") or 1, details.get("offset") or 1)
