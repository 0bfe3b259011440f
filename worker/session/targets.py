"""Makes the target of each launch and attach."""

from __future__ import annotations

from debug_relay.protocol.models.program import Attach
from debug_relay.worker.attach.attached import AttachedProgram
from debug_relay.worker.attach.by_port import JoinedProgram
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debuggee.handshake import NewServers
from debug_relay.worker.debuggee.launch_plan import Plan
from debug_relay.worker.debuggee.launched import LaunchedProgram
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Debuggee, Target
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.joining.listener import JoinListener
from debug_relay.worker.native.plan import NativePlan
from debug_relay.worker.native.program import NativeTarget
from debug_relay.worker.state.core import Core


class Targets:
    def __init__(
        self,
        core: Core,
        probes: ProbeClient,
        debuggee: Debuggee,
        input_requests: InputRequests,
        run: RunControl,
        breakpoints: Breakpoints,
        interpreters: InterpreterCache,
        servers: NewServers,
        joining: JoinListener,
    ) -> None:
        self._core = core
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._publication = core.publication
        self._probes = probes
        self._debuggee = debuggee
        self._input_requests = input_requests
        self._run = run
        self._breakpoints = breakpoints
        self._interpreters = interpreters
        self._servers = servers
        self._joining = joining

    def launched(self, plan: Plan | NativePlan) -> Target:
        if isinstance(plan, NativePlan):
            return NativeTarget(
                plan,
                self._settings,
                self._lifecycle,
                self._log,
                self._publication,
                self._debuggee,
                self._input_requests,
                self._joining,
            )
        return LaunchedProgram(
            plan,
            self._settings,
            self._lifecycle,
            self._log,
            self._publication,
            self._debuggee,
            self._input_requests,
            self._servers,
        )

    def attached(self, params: Attach) -> Target:
        """Attach by port if the request names no pid."""
        if params.pid is None:
            return JoinedProgram(
                params, self._settings, self._lifecycle, self._log, self._debuggee, self._servers
            )
        return AttachedProgram(
            params,
            self._core,
            self._probes,
            self._debuggee,
            self._run,
            self._breakpoints,
            self._interpreters,
            self._servers,
        )
