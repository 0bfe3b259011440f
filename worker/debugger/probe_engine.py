"""The engine with the probe: all abilities of `Engine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from debug_relay.protocol.wire import breakpoint_requests, dap
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.engine import Capabilities, exception_filters

if TYPE_CHECKING:
    from debug_relay.worker.debugger.connection import DebugServer
    from debug_relay.worker.debugger.probe_client import ProbeClient

# pydevd prints this on Python up to 3.11 when a program replaces the thread's trace function. It is
# untrue with the probe, which sets the trace function again (`retracing`) and reports that itself.
_UNTRUE: Final = "Debugging will be disabled for this thread ("


class ProbeEngine:
    can = Capabilities(
        decide_stops=True,
        report_stops=True,
        render_safely=True,
        move_single_threads=True,
        read_running_threads=True,
        answer_requests=True,
    )

    def __init__(self, server: DebugServer, probes: ProbeClient) -> None:
        self._server = server
        self._probes = probes

    def require(self, what: str, suggestion: str, attached: bool, **details: Any) -> None:
        pass

    def hits_in(self, event: dap.StoppedBody) -> list[str] | None:
        if event.hit_breakpoint_ids is None:
            return None
        return [f"bp_{number}" for number in event.hit_breakpoint_ids]

    def stops_wrongly_at(self, exception_type: str) -> bool:
        return False

    def is_untrue(self, output: str) -> bool:
        return _UNTRUE in output

    async def show_safely(self) -> None:
        await self._probes.ask(self._server, probe.Show(mode="safe"))

    async def watch(self, rows: Sequence[tuple[str, str]]) -> None:
        await self._probes.ask(self._server, probe.Watches(watches=list(rows)))

    async def stop_all(self, on: bool) -> None:
        await self._probes.ask(self._server, probe.StopAll(on=on))

    async def move_output(
        self, known: Mapping[str, probe.Category], pipes: Mapping[probe.Category, str]
    ) -> list[probe.Category]:
        request = probe.Streams(known=dict(known), pipes=dict(pipes))
        return await self._probes.ask(self._server, request)

    async def watch_calls(self, thread: int) -> None:
        await self._probes.ask(self._server, probe.WatchCalls(thread=thread))

    async def native_callee(self, thread: int) -> str | None:
        return await self._probes.ask(self._server, probe.Native(thread=thread))

    async def stop_at_exceptions(
        self,
        filters: Sequence[str],
        details: breakpoint_requests.Exceptions,
        suspended: bool,
        timeout: float,
    ) -> None:
        """The probe decides at each exception that pydevd examines, and knows of a suspension."""
        await self._probes.ask(self._server, details)
        kinds = dict.fromkeys(filters)
        if details.types:
            kinds["raised"] = None
        await self._server.request(
            "setExceptionBreakpoints", exception_filters(list(kinds)), dict, timeout
        )

    async def report(
        self,
        thread: int,
        frames: int,
        variables: int,
        width: int,
        timeout: float,
        safe: bool,
        fold: answers.Fold,
    ) -> answers.StopReport:
        question = probe.Report(
            thread=thread, frames=frames, locals=variables, width=width, fold=fold, safe=safe
        )
        what = "the stop report"
        return await self._probes.ask_thread(self._server, what, timeout, question, soon=True)

    async def exception(self, thread: int, timeout: float, safe: bool) -> answers.ExceptionReport:
        question = probe.Raised(thread=thread, safe=safe)
        what = "the exception"
        return await self._probes.ask_thread(self._server, what, timeout, question, partial=True)

    async def evaluate(
        self, frame: dap.StackFrame, text: str, context: str, timeout: float
    ) -> answers.Evaluated:
        question = probe.Evaluate(frame=frame.id, text=text, context=context)
        return await self._probes.ask_thread(self._server, text, timeout, question)

    async def sizes(self, frame: int, timeout: float) -> answers.ScopeSizes:
        return await self._probes.ask_thread(
            self._server, "the scopes' sizes", timeout, probe.Sizes(frame=frame)
        )

    async def page(
        self, reference: int, scope: str | None, timeout: float, **wanted: Any
    ) -> answers.VariablePage:
        question = probe.Page(reference=reference, scope=scope, **wanted)
        what = "a page of variables"
        return await self._probes.ask_thread(self._server, what, timeout, question, soon=True)

    async def assign(
        self, reference: int, scope: str | None, name: str, text: str, timeout: float
    ) -> answers.Assigned:
        question = probe.Assign(reference=reference, name=name, text=text, scope=scope)
        return await self._probes.ask_thread(self._server, text, timeout, question)

    async def returned(self, frame: int, timeout: float) -> answers.ReturnedValue:
        return await self._probes.ask_thread(
            self._server, "the returned value", timeout, probe.Returned(frame=frame)
        )

    async def complete(
        self, frame: int, text: str, timeout: float
    ) -> tuple[answers.Answer, list[dap.CompletionItem]]:
        question = probe.Complete(frame=frame, text=text)
        what = "the completions"
        found = await self._probes.ask_thread(self._server, what, timeout, question, soon=True)
        length = len(text) - found.start
        return found, [
            dap.CompletionItem(label=name, type=sort, start=found.start, length=length)
            for name, sort in found.rows
        ]

    async def live_stack(
        self, thread: int, start: int, levels: int, timeout: float
    ) -> probe.LiveStack | None:
        request = probe.Live(thread=thread, start=start, levels=levels)
        return await self._probes.ask(self._server, request, timeout)

    async def modules(self, start: int, count: int, timeout: float) -> probe.ModulePage:
        return await self._probes.ask(
            self._server, probe.Modules(start=start, count=count), timeout
        )

    async def text(self, frame: int) -> list[str] | None:
        return await self._probes.ask(self._server, probe.Text(frame=frame))

    async def is_decompiled(self, source: int) -> bool:
        return await self._probes.ask(self._server, probe.Decompiled(number=source))
