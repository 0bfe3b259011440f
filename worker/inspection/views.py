"""Looks into a stopped program: stacks, variables, evaluation, in the shapes of the API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models import threads as t
from debug_relay.protocol.models.fields import UNSET
from debug_relay.protocol.models.stop_report import ReturnValue
from debug_relay.protocol.state import State
from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.breakpoints.source_changes import OUTDATED
from debug_relay.worker.debugger import thread_positions
from debug_relay.worker.debugger.connection import LOOK_SECONDS
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.engine import Children
from debug_relay.worker.debugger.hub import KnownThread
from debug_relay.worker.debugger.no_answer import note as no_answer_note
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.thread_positions import ThreadPosition
from debug_relay.worker.inspection import outside_stacks
from debug_relay.worker.inspection.live_threads import COPIED, LiveThreads
from debug_relay.worker.inspection.variables import as_listed
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.settings import Settings


class Views:
    """The views that callers get of the debugged program."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        debugging: Debugging,
        breakpoints: Breakpoints,
        run: RunControl,
    ) -> None:
        self.live = LiveThreads(settings.id, debugging)
        self._settings = settings
        self._lifecycle = lifecycle
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops
        self._breakpoints = breakpoints
        self._run = run

    def thread_of(self, thread_id: int | None) -> int:
        """The named thread, or the selected one. While the session is paused it must be stopped."""
        if thread_id is not None and self._stops.current is not None:
            return self._run.thread_to_move(thread_id).id
        return self.any_thread_of(thread_id)

    def any_thread_of(self, thread_id: int | None) -> int:
        """The thread that a call means, which may be running."""
        if thread_id is not None:
            return self._hub.thread(thread_id).id
        if self._stops.current is not None:
            return self._stops.current.thread_id
        known = self._hub.thread_ids()
        if not known:
            self._hub.main_server()
            raise RelayError(
                Code.THREAD_NOT_FOUND,
                "The program has not reported any thread yet",
                f"{call_of('threads')} asks the program for its threads.",
            )
        return known[0]

    async def threads(self) -> t.ThreadList:
        listed, silent = await self._hub.refresh_threads()
        known = await thread_positions.of_threads(self._probes, but=silent)
        notes = [no_answer_note(server.local_pid, LOOK_SECONDS) for server in silent]
        shown = [self._thread(one, known.get(one.id), one.server in silent) for one in listed]
        return self._thread_list(shown, notes)

    async def threads_with_locals(self, every: bool) -> t.ThreadList:
        """The threads with their frames, and what they wait for; `every`: also libraries' frames.

        Of a process that does not answer, the stacks are read from its memory.
        """
        pages, silent = await self.live.look(every)
        (listed, silent), outside = await asyncio.gather(
            self._hub.refresh_threads(silent), outside_stacks.of_silent(silent, every)
        )
        result = self._thread_list(
            [self._thread(one, None, one.server in silent) for one in listed]
        )
        notes = [
            no_answer_note(one.local_pid, LOOK_SECONDS, one.local_pid in outside) for one in silent
        ]
        result.outside = list(outside.values()) or UNSET
        result.note = "; ".join(notes + self.live.add(pages, result)) or UNSET
        return result

    def _thread_list(self, shown: list[t.Thread], notes: Iterable[str] = ()) -> t.ThreadList:
        return t.ThreadList(
            threads=shown,
            stopped_thread_id=self._stops.current.thread_id if self._stops.current else None,
            note="; ".join(notes) or UNSET,
        )

    def _thread(self, known: KnownThread, now: ThreadPosition | None, last_known: bool) -> t.Thread:
        paused = known.id in self._stops.threads and (now is None or now.will_stop)
        return t.Thread(
            id=known.id,
            name=known.name or f"Thread {known.id}",
            status="paused" if paused else "running",
            is_current=self._stops.current is not None
            and self._stops.current.thread_id == known.id,
            current_location=now.place if now is not None else None,
            pause_pending=now is not None and now.will_stop and not now.is_stopped,
            pid=known.server.pid or None,
            is_child=known.server.is_child,
            last_known=last_known,
        )

    async def stack(self, thread_id: int | None, start: int, levels: int) -> i.Stack:
        chosen = self.any_thread_of(thread_id)
        found = await self.live_stack(chosen, start, levels)
        if found is None:
            found = await self._stack_by_dap(chosen, start, levels)
        server = self._hub.process_of(chosen)
        if server is not None and server.is_child:
            found.child_pid = server.pid
        outdated = await self._breakpoints.outdated({frame.source.path for frame in found.frames})
        for shown in found.frames:
            if server is not None and server.pid in outdated.get(shown.source.path, ()):
                shown.warning = OUTDATED
        return found

    async def live_stack(
        self, thread_id: int, start: int, levels: int, timeout: float = LOOK_SECONDS
    ) -> i.Stack | None:
        """A snapshot of the stack of a thread that runs, or is in C while the others are
        stopped.
        """
        known = self._hub.thread(thread_id)
        if self._stops.threads.of(thread_id) is not None:
            return None
        stack = await thread_positions.live_stack(self._probes, known, start, levels, timeout)
        if stack is None:
            return None
        return i.Stack(
            thread_id=thread_id,
            frames=[
                i.Frame(
                    id=start + index,
                    name=name,
                    source=i.SourceRef(path=path, name=os.path.basename(path)),
                    line=line,
                    column=1,
                    module_name=module,
                )
                for index, (name, path, line, module) in enumerate(stack.rows)
            ],
            total_frames=stack.total,
            has_more=start + len(stack.rows) < stack.total,
            live=True,
        )

    async def _stack_by_dap(self, chosen: int, start: int, levels: int) -> i.Stack:
        live = self._lifecycle.state is not State.PAUSED
        if live:
            # The stack of a running thread changes at once, so nothing of it is kept.
            self._hub.forget_stop(chosen)
        window = await self._hub.stack(chosen, start, levels, LOOK_SECONDS if live else None)
        frames = [self._frame(start + index, frame) for index, frame in enumerate(window.frames)]
        return i.Stack(
            thread_id=chosen,
            frames=frames,
            total_frames=window.total,
            has_more=start + len(frames) < window.total,
            live=live,
        )

    def _frame(self, index: int, frame: dap.StackFrame) -> i.Frame:
        path = frame.source.path if frame.source and frame.source.path else "<unknown>"
        return i.Frame(
            id=index,
            name=frame.name,
            source=i.SourceRef(path=path, name=os.path.basename(path)),
            line=frame.line,
            column=frame.column,
            module_name=self._hub.module_of(path),
            presentation_hint=frame.presentation_hint or "normal",
        )

    async def variables(
        self,
        reference: int,
        start: int,
        count: int,
        kind: Children | None = None,
        summary: bool = False,
        safe: bool = False,
    ) -> i.VariableList:
        """A page of variables. With `safe` none of the program's code is run to render them."""
        hub = self._hub
        entry = hub.resolve(reference)
        if entry.live is not None:
            return await self.live.variables(reference, start, count, kind, summary)
        page = await self._probes.page(
            reference,
            self._settings.evaluate_timeout,
            start=start,
            count=count,
            filter=kind,
            bounds="outline" if summary else "row",
            safe=safe,
        )
        self.require_answer(page)
        if (raised := page.raised) is not None:
            raise RelayError(
                Code.DEBUGPY_ERROR,
                f"Listing the contents of reference {reference} raised {raised.type}: "
                f"{raised.message}",
                f"{call_of('evaluate')} with an expression for the part that you need.",
                debugger_message=raised.traceback,
            )
        rows = page.rows
        return i.VariableList(
            variables_reference=reference,
            variables=[as_listed(hub, entry.server, entry.thread_id, row) for row in rows],
            start=start,
            total=page.total,
            has_more=start + len(rows) < page.total,
            evaluating=page.aside or UNSET,
            repr="safe" if safe else UNSET,
        )

    async def return_value(self, thread_id: int) -> ReturnValue | None:
        """The return value of the function that a thread has just stepped out of."""
        stop = self._stops.threads.of(thread_id)
        if stop is None or stop.reason != "step":
            return None
        thread = self._hub.thread(thread_id)
        frame = await self._hub.frame(thread.id, 0)
        found = await self._probes.returned(thread.server, frame, self._settings.evaluate_timeout)
        return ReturnValue(type=found.type or "", value=found.value) if found else None

    async def evaluate(
        self, params: i.Evaluate, from_outside: KnownThread | None = None
    ) -> i.Evaluated:
        """Evaluate in a stopped frame; or `from_outside` in one of a thread that is not stopped."""
        timeout = params.timeout or self._settings.evaluate_timeout
        if from_outside is not None:
            answer = await self.live.evaluate(from_outside, params, timeout)
            shown = self._evaluated(params, answer, from_outside.id)
            shown.live, shown.note = True, COPIED
            return shown
        thread_id = self.thread_of(params.thread_id)
        frame = await self._hub.frame(thread_id, params.frame_id)
        answer = await self._probes.evaluate(
            thread_id, frame, params.expression, context=params.context, timeout=timeout
        )
        return self._evaluated(params, answer, thread_id)

    def _evaluated(
        self, params: i.Evaluate, answer: answers.Evaluated, thread_id: int
    ) -> i.Evaluated:
        self.require_answer(answer)
        if answer.refused is not None:
            raise _refused(params, answer.refused)
        if (raised := answer.raised) is not None:
            short = raised.type.rpartition(".")[2]
            return i.Evaluated(
                result=None,
                type=None,
                error=f"{short}: {raised.message}" if raised.message else short,
                error_details=i.ErrorDetails(
                    type=raised.type, message=raised.message, traceback=raised.traceback
                ),
            )
        if answer.value is None:  # a statement
            return i.Evaluated(result=None, type=None)
        server = self._hub.thread(thread_id).server
        variable = as_listed(self._hub, server, thread_id, answer.value)
        return i.Evaluated(
            result=variable.value,
            type=answer.value.type,
            variables_reference=variable.variables_reference,
            named_variables=variable.named_variables,
            indexed_variables=variable.indexed_variables,
            presentation_hint=variable.presentation_hint,
            truncated=variable.truncated,
            length=UNSET if variable.length is None else variable.length,
            base64=variable.base64,
            circular=variable.circular,
        )

    def require_answer(self, answer: answers.Answer) -> None:
        """Raise if the thread did not begin the evaluation, or did not end it."""
        if answer.gone:
            raise RelayError(
                Code.INVALID_SESSION_STATE,
                "The thread resumed before it could evaluate",
                f"{call_of('session-status')} shows where it is; evaluate at the next stop.",
                current_state=self._lifecycle.state.value,
                required_state="paused",
            )
        if answer.interrupted:
            raise RelayError(
                Code.DEBUGPY_TIMEOUT,
                "The evaluation was interrupted",
                "The session is as before; give a larger timeout.",
                operation="evaluate",
                evaluating=False,
            )


def _refused(params: i.Evaluate, problem: answers.Refusal) -> RelayError:
    statement = params.context != "repl" and "invalid syntax" in problem.message
    return RelayError(
        Code.EVALUATE_ERROR,
        f"The expression does not compile: {problem.message}",
        "Statements need context repl; otherwise correct the expression."
        if statement
        else f"Correct it at column {problem.offset or 1}.",
        expression=params.expression[:200],
        error_message=problem.message,
        line=problem.line,
        offset=problem.offset,
    )
