"""A session's blueprint: drawn from one session, and taken over by another.

A session that is imported, cloned or restored takes over a blueprint before any caller can reach
it. Its breakpoints are verified anew, and none is refused.
"""

from __future__ import annotations

import asyncio
from typing import Any

from debug_relay.protocol.models.blueprint import (
    ShownLaunch,
    given_fields,
    shown_launch,
    without_secrets,
)
from debug_relay.protocol.models.sessions import Blueprint, Program
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.project_breakpoints import SavedBreakpoints
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.session.retirement import Retirement
from debug_relay.worker.state.core import Core


class Blueprints:
    """Draws the session's blueprint, and takes over the one it was created with."""

    def __init__(
        self,
        core: Core,
        debuggee: Debuggee,
        breakpoints: Breakpoints,
        exceptions: ExceptionFilters,
        watches: Watches,
        saved: SavedBreakpoints,
        retirement: Retirement,
    ) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._debuggee = debuggee
        self._breakpoints = breakpoints
        self._exceptions = exceptions
        self._watches = watches
        self._saved = saved
        self._retirement = retirement

    def shown(self) -> Blueprint:
        """The blueprint as it is written to disk: without secrets."""
        return without_secrets(self.draw(), self._debuggee.shown_launch)

    def draw(self) -> Blueprint:
        """The whole blueprint; the environment's secret values are in it."""
        return Blueprint(
            name=self._settings.name,
            config=self._settings.config,
            program=self._debuggee.arguments,
            missing_env=self._debuggee.missing_env,
            missing_fields=self._debuggee.missing_fields,
            breakpoints=[_given(kept) for kept in self._breakpoints.specs()],
            next_breakpoint=self._breakpoints.next_number,
            exception_breakpoints=self._exceptions.spec(),
            watches=[{"expression": watch.expression} for watch in self._watches.listed()],
        )

    async def take_over(self) -> None:
        """Take over a blueprint, or the breakpoints saved for the project."""
        params, blueprint = self._settings.params, self._settings.params.blueprint
        if blueprint is not None:
            if blueprint.program is not None:
                shown = await asyncio.to_thread(shown_launch, blueprint.program)
                self._debuggee.launched_with(blueprint.program, shown)
                self._debuggee.program = _program(blueprint.program, shown)
            self._debuggee.missing_env = blueprint.missing_env
            self._debuggee.missing_fields = blueprint.missing_fields
            self._exceptions.take_over(blueprint.exception_breakpoints or {})
            for watch in blueprint.watches:
                self._watches.add(watch["expression"])
            await self._breakpoints.inherit(blueprint.breakpoints, blueprint.next_breakpoint)
        if params.ended is not None:
            self._retirement.take_over(params.ended)
            self._saved.note()
        elif params.restored:
            self._saved.note()
            body = {
                "status": self._lifecycle.state,
                "previous_status": self._lifecycle.previous_status,
            }
            self._log.journal("session", {**body, "restored": True})
        elif blueprint is not None:
            await self._saved.save()
        if params.restore_breakpoints:
            await self.restore_breakpoints()

    async def restore_breakpoints(self) -> None:
        """Set the breakpoints that are saved for the project root, whichever caller set them."""
        saved = await self._saved.load()
        await self._breakpoints.inherit([given_fields(spec) for spec in saved])
        self._saved.note()


def _given(kept: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not at their default (absent, or enabled)."""
    return {name: value for name, value in kept.items() if value is not None and value is not True}


def _program(arguments: dict[str, Any], shown: ShownLaunch) -> Program:
    """The program that a restart would launch, as callers see it."""
    return Program(
        adapter=arguments.get("adapter", "debugpy"),
        program=arguments.get("program"),
        script=arguments.get("script"),
        module=arguments.get("module"),
        args=shown.args,
        cwd=arguments.get("cwd"),
        env=shown.env,
        python_path=arguments.get("python_path"),
    )
