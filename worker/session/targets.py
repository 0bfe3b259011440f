"""Plans each launch, and makes the target of each launch and attach."""

from __future__ import annotations

from debug_relay.protocol.models.program import Attach, Launch
from debug_relay.worker.attach.attached import AttachedProgram
from debug_relay.worker.attach.by_port import JoinedProgram
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debuggee.handshake import NewServers
from debug_relay.worker.debuggee.launch_plan import LaunchPlanner, Plan
from debug_relay.worker.debuggee.launched import LaunchedProgram
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.input_requests import InputRequests
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Target
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.joining.listener import JoinListener
from debug_relay.worker.native.plan import NativePlan, NativePlanner
from debug_relay.worker.native.program import NativeTarget
from debug_relay.worker.state.core import Core


class Targets:
    def __init__(
        self,
        core: Core,
        debugging: Debugging,
        input_requests: InputRequests,
        run: RunControl,
        breakpoints: Breakpoints,
        interpreters: InterpreterCache,
        servers: NewServers,
        joining: JoinListener,
    ) -> None:
        self._core = core
        self._probes = debugging.probes
        self._debuggee = debugging.debuggee
        self._input_requests = input_requests
        self._run = run
        self._breakpoints = breakpoints
        self._interpreters = interpreters
        self._servers = servers
        self._joining = joining
        self._planner = LaunchPlanner(core.settings, interpreters, breakpoints, joining)
        self._native_planner = NativePlanner(core.settings, joining)

    async def plan(self, params: Launch) -> Plan | NativePlan:
        """Find all that the launch needs; a refused launch has changed nothing."""
        if params.adapter == "debugpy":
            return await self._planner.plan(params)
        return await self._native_planner.plan(params, params.adapter)

    def launched(self, plan: Plan | NativePlan) -> Target:
        if isinstance(plan, NativePlan):
            return NativeTarget(
                plan, self._core, self._debuggee, self._input_requests, self._joining
            )
        return LaunchedProgram(
            plan, self._core, self._debuggee, self._input_requests, self._servers
        )

    def attached(self, params: Attach) -> Target:
        """Attach by port if the request names no pid."""
        if params.pid is None:
            return JoinedProgram(params, self._core, self._debuggee, self._servers)
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
