"""Starts the session's program: a launch, a restart or an attach."""

from __future__ import annotations

from debug_relay.protocol.models.fields import ExceptionStop
from debug_relay.protocol.models.program import Attach, Launch
from debug_relay.protocol.refusals import deleted_meanwhile
from debug_relay.protocol.state import State
from debug_relay.worker.attach import by_port
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debuggee.launch_plan import Plan
from debug_relay.worker.debugger.target import Debuggee, Target
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.native.plan import NativePlan
from debug_relay.worker.session.settings_changes import stop_all_needs_probe
from debug_relay.worker.session.targets import Targets
from debug_relay.worker.state.core import Core


class Starting:
    def __init__(
        self,
        core: Core,
        debuggee: Debuggee,
        breakpoints: Breakpoints,
        exceptions: ExceptionFilters,
        limits: LimitWatch,
        targets: Targets,
    ) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._publication = core.publication
        self._debuggee = debuggee
        self._breakpoints = breakpoints
        self._exceptions = exceptions
        self._limits = limits
        self._targets = targets

    async def plan(self, params: Launch) -> Plan | NativePlan:
        """Find all that the launch needs; a refused launch has changed nothing."""
        return await self._targets.plan(params)

    async def launch(self, params: Launch, plan: Plan | NativePlan) -> None:
        if isinstance(plan, Plan):
            self._breakpoints.verifier.use(plan.code_lines)
            self._stop_on_exception(params.stop_on_exception)
        debuggee = self._debuggee
        debuggee.launched_with(plan.arguments, plan.shown)
        self._limits.launch_with(params.limits)
        target = self._targets.launched(plan)
        await self._start(target)
        if debuggee.missing_env or debuggee.missing_fields:
            debuggee.missing_env, debuggee.missing_fields = [], []
            self._publication.changed()
        for text in params.stdin_inputs:
            # Each text is one line, as a person would type it.
            await target.write_input((text.rstrip("\n") + "\n").encode(), eof=False)

    async def attach(self, params: Attach) -> None:
        by_port.check(params)
        if params.port is not None and not self._settings.config.stop_all:
            raise stop_all_needs_probe()
        self._stop_on_exception(params.stop_on_exception)
        await self._start(self._targets.attached(params))

    def _stop_on_exception(self, choice: ExceptionStop | None) -> None:
        """`stop_on_exception` of a launch or an attach as exception filters."""
        if choice is None:
            return
        if choice is True:
            self._exceptions.use(["raised", "uncaught"])
        else:
            self._exceptions.use([choice] if choice else [])

    async def _start(self, target: Target) -> None:
        """Return when the program runs under the debugger; if it is refused, the session is as
        before.
        """
        self._debuggee.target = target
        self._lifecycle.starting()
        try:
            await target.start()
        except BaseException:
            if self._lifecycle.state is State.LAUNCHING:
                self._lifecycle.refused()
                raise
            program = self._debuggee.program
            if self._debuggee.target is target and program is not None and program.attached:
                self._lifecycle.detached()  # the program had stopped before the start failed
                raise
            # Another call ended the program meanwhile; report that, and no failed launch.
            raise deleted_meanwhile(self._settings.id) from None
        self._lifecycle.running()
        self._publication.save()
