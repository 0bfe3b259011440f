"""Reads the report of the program's bootstrap: the program runs, or why it does not.

The report comes by a pipe and not by a DAP event, so that a program that ends at once reports, too.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from debug_relay.protocol.errors import RelayError
from debug_relay.worker.debuggee import start_refusals
from debug_relay.worker.debuggee.launch_plan import Plan
from debug_relay.worker.source.code_lines import SyntaxProblem


class _FoundSyntaxError(SyntaxProblem, frozen=True):
    file: str


class StartStatus:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # Done when the program runs; otherwise it has the error.
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pipe = -1

    @property
    def has_run(self) -> bool:
        started = self.started
        return started.done() and not started.cancelled() and started.exception() is None

    def listen(self) -> int:
        """Open the pipe; returns the program's end, which the starter of the program closes."""
        self._pipe, end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._pipe, self.read)
        return end

    def runs(self) -> None:
        """Note another sign that the program runs than bootstrap's report."""
        if not self.started.done():
            self.started.set_result(None)

    def read(self) -> None:
        if self._pipe < 0:
            return
        try:
            said = os.read(self._pipe, 4096)
        except BlockingIOError:
            return
        self.close()
        if self.started.done():
            return
        word, _, reason = said.partition(b":")
        if word == b"started":
            self.started.set_result(None)
        elif word == b"no module":
            plan = self._plan
            self._refuse(
                start_refusals.no_module(
                    plan.interpreter.path,
                    plan.target,
                    plan.cwd,
                    reason.decode(),
                    by_name=plan.kind == "module",
                )
            )
        elif word == b"syntax error":
            found = msgspec.json.decode(reason, type=_FoundSyntaxError)
            self._refuse(start_refusals.syntax_error(found.file, found))

    def _refuse(self, error: RelayError) -> None:
        self.started.set_exception(error)
        self.started.exception()  # marks it as read: perhaps no task waits for it any more

    def close(self) -> None:
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
