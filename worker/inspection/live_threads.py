"""Reads threads from outside: those that run, and those that are blocked in C.

Such a thread cannot answer itself. The probe reads its frames in the debugger's thread and shows
values safely, so none of the program's code runs. A reference into such a frame keeps no object of
the program: the value is found anew at each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models import threads as t
from debug_relay.protocol.models.fields import UNSET, Location
from debug_relay.protocol.system import procfs
from debug_relay.protocol.wire import live_answers as looks
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger import thread_positions
from debug_relay.worker.debugger.connection import LOOK_SECONDS, DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.hub import KnownThread, LivePlace
from debug_relay.worker.inspection.variables import counts

FRAMES: Final = 10  # Frames of one thread in a look.
LOCALS: Final = 30  # Locals of one frame in a look.
VALUE: Final = 400  # Characters of one value in a look.
CHARACTERS: Final = 60_000  # Characters of all frames and locals of one look.
_FRAME: Final = 40  # Characters of a frame beside its name and path.
COPIED: Final = "evaluated in another thread, with a copy of the frame's locals"

Page = tuple[DebugServer, looks.LookPage]


class LiveThreads:
    def __init__(self, session_id: str, debugging: Debugging) -> None:
        self._session_id = session_id
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops

    async def find(self, thread_id: int | None) -> KnownThread | None:
        """The named thread if it is to be read from outside; None if it is stopped."""
        if thread_id is None:
            return None
        known = self._hub.thread(thread_id)
        is_stopped = self._stops.threads.of(thread_id) is not None
        if is_stopped or not known.server.engine.can.read_running_threads:
            return None
        stack = await thread_positions.live_stack(self._probes, known, 0, 1)
        return None if stack is None else known

    # -- all threads

    async def look(self, every: bool) -> tuple[list[Page], list[DebugServer]]:
        """Ask every process for its threads' frames and what they wait for; also returns the
        processes that do not answer.
        """
        request = probe.Look(threads=[], frames=FRAMES, locals=LOCALS, width=VALUE, every=every)

        async def ask(server: DebugServer) -> Page | None:
            try:
                return server, await self._probes.ask(server, request, LOOK_SECONDS)
            except RelayError as error:
                if error.code is not Code.DEBUGPY_TIMEOUT:
                    raise
                return None

        asked = self._probes.probed()
        pages = [page for page in await self._hub.each(asked, ask) if page is not None]
        answered = [server for server, _ in pages]
        return pages, [one for one in asked if not (one.lost or one in answered)]

    def add(self, pages: list[Page], to: t.ThreadList) -> list[str]:
        """Add to each thread its frames with their locals, and what it waits for; returns notes."""
        by_id = {thread.id: thread for thread in to.threads}
        circles = [
            [self._hub.thread_id(server, key) for key in circle]
            for server, page in pages
            for circle in page.circles
        ]
        urgent = {id for circle in circles for id in circle}
        rows = [
            (self._hub.thread_id(server, row.thread), server, row)
            for server, page in pages
            for row in page.rows
        ]
        room = CHARACTERS
        for thread_id, server, row in sorted(rows, key=lambda one: (one[0] not in urgent, one[0])):
            if thread_id in by_id:
                room = self._add(by_id[thread_id], server, row, by_id, room)
        notes = [
            "a program that was attached by port has no probe: its threads have no locals here"
            for server in self._hub.taking_changes()
            if not server.engine.can.read_running_threads
        ]
        if room <= 0:
            notes.append(_cut(self._session_id))
        to.deadlocks = circles or UNSET
        return notes

    def _add(
        self,
        thread: t.Thread,
        server: DebugServer,
        row: looks.LookRow,
        by_id: dict[int, t.Thread],
        room: int,
    ) -> int:
        """Fill in one thread; returns the characters that are left for others."""
        thread.frames = []
        for frame in row.frames:
            if room <= 0 and thread.frames:
                break
            shown, room = live_frame(frame, room)
            thread.frames.append(shown)
        thread.total_frames = row.total
        thread.frames_left_out = max(0, row.own - len(thread.frames)) or UNSET
        thread.live = UNSET if row.stopped else True
        if row.wait is not None and not _is_busy(server, row):
            thread.waits_for = waits_for(row.wait, lambda key: self._named(server, key, by_id))
        return room

    def _named(
        self, server: DebugServer, key: int | str | None, by_id: dict[int, t.Thread]
    ) -> tuple[int | None, str | None]:
        if not isinstance(key, int):
            return None, None
        thread_id = self._hub.thread_id(server, key)
        known = by_id.get(thread_id)
        return thread_id, known.name if known is not None else None

    # -- tasks

    async def tasks(self, server: DebugServer, params: t.Tasks) -> t.TaskList:
        request = probe.Tasks(
            locals=LOCALS if params.locals else 0, width=VALUE, every=params.frames == "all"
        )
        page = await self._probes.ask(server, request, LOOK_SECONDS)
        room, listed = CHARACTERS, []
        for row in page.rows:
            task = t.Task(
                name=row.name,
                coroutine=row.coroutine,
                state=row.state,
                frames=[
                    t.TaskFrame(name=name, path=path, line=line) for name, path, line in row.frames
                ],
                waiting_for=row.waiting_for,
                current=row.current,
                exception=row.exception,
            )
            if params.locals and row.state == "pending":
                task.frames = []
                for looked in row.looked:
                    frame, room = live_frame(looked, room)
                    task.frames.append(
                        t.TaskFrame(
                            name=frame.name,
                            path=frame.path,
                            line=frame.line,
                            locals=frame.locals,
                            locals_left_out=frame.locals_left_out or UNSET,
                        )
                    )
                if row.wait is not None:
                    task.waits_for = waits_for(row.wait, lambda key: self._named(server, key, {}))
            listed.append(task)
        return t.TaskList(
            tasks=listed,
            total=page.total,
            deadlocks=page.circles or UNSET,
            note=_cut(self._session_id) if room <= 0 else UNSET,
        )

    # -- one frame

    async def scopes(self, thread: KnownThread, frame: int) -> i.ScopeList:
        sizes = await self._ask(thread, probe.PeekSizes(thread=thread.dap_id, frame=frame))
        if sizes.gone or sizes.place is None:
            raise self._no_frame(thread, frame)
        place = LivePlace(frame, sizes.place[0], [])
        return i.ScopeList(
            frame_id=frame,
            thread_id=thread.id,
            scopes=[
                i.Scope(
                    name=name.capitalize(),
                    presentation_hint=name,
                    variables_reference=self._hub.live_reference(thread, name, place),
                    named_variables=count,
                    indexed_variables=0,
                )
                for name, count in (("locals", sizes.locals), ("globals", sizes.globals))
            ],
            live=True,
        )

    async def frame_variables(
        self, thread: KnownThread, params: i.FrameVariables
    ) -> i.VariableList:
        place = LivePlace(params.frame_id, "", [])
        reference = self._hub.live_reference(thread, params.scope, place)
        found = await self.variables(reference, params.start, params.count, None, params.summary)
        return found

    async def variables(
        self, reference: int, start: int, count: int, kind: str | None, summary: bool
    ) -> i.VariableList:
        """A page of a live reference, as its value is at this moment."""
        entry = self._hub.resolve(reference)
        place, scope = entry.live, entry.scope or "locals"
        assert place is not None
        thread = self._hub.thread(entry.thread_id)
        page = await self._ask(
            thread,
            probe.Peek(
                thread=thread.dap_id,
                frame=place.frame,
                scope=scope,
                way=place.way,
                start=start,
                count=count,
                filter=kind,
                bounds="outline" if summary else "row",
            ),
        )
        if page.gone:
            raise self._no_frame(thread, place.frame)
        if place.function and place.function != page.function:
            raise RelayError(
                Code.VARIABLE_NOT_FOUND,
                f"Frame {place.frame} of thread {thread.id} runs {page.function} now, and the "
                f"reference is of {place.function}: the thread has run on",
                f"{call_of('threads')}?locals=true shows where it is now.",
                variables_reference=reference,
            )
        return i.VariableList(
            variables_reference=reference,
            variables=[
                self._variable(thread, scope, place.frame, page.function, row) for row in page.rows
            ],
            start=start,
            total=page.total,
            has_more=start + len(page.rows) < page.total,
            repr="safe",
            live=True,
        )

    def _variable(
        self, thread: KnownThread, scope: str, frame: int, function: str, row: answers.Variable
    ) -> i.ListedVariable:
        reference = 0
        if row.way is not None:
            place = LivePlace(frame, function, row.way)
            reference = self._hub.live_reference(thread, scope, place)
        row.reference = reference
        named, indexed = counts(row)
        return i.ListedVariable(
            name=row.name,
            value=row.value,
            type=row.type or "",
            variables_reference=reference,
            named_variables=named,
            indexed_variables=indexed,
            length=row.length,
            expandable=reference != 0,
            presentation_hint=row.hint,
            truncated=row.truncated,
            base64=UNSET if row.base64 is None else row.base64,
            circular=row.circular or UNSET,
        )

    async def evaluate(
        self, thread: KnownThread, params: i.Evaluate, timeout: float
    ) -> answers.Evaluated:
        """Evaluate in another thread, with the frame's globals and a copy of its locals."""
        question = probe.EvaluateAside(
            thread=thread.dap_id,
            frame=params.frame_id,
            text=params.expression,
            context=params.context,
        )
        answer = await self._probes.ask_thread(thread.server, params.expression, timeout, question)
        if answer.busy:
            raise RelayError(
                Code.INVALID_SESSION_STATE,
                "Several earlier evaluations for threads that do not stop still hang in C",
                f"{call_of('threads')}?locals=true shows values without evaluating; terminating "
                "the program ends them.",
                current_state="evaluating",
                required_state="paused",
            )
        if answer.gone:
            raise self._no_frame(thread, params.frame_id)
        return answer

    async def _ask(self, thread: KnownThread, request: probe.Request[probe.T]) -> probe.T:
        return await self._probes.ask(thread.server, request, LOOK_SECONDS)

    def _no_frame(self, thread: KnownThread, frame: int) -> RelayError:
        return RelayError(
            Code.FRAME_NOT_FOUND,
            f"Thread {thread.id} has no frame {frame} at this moment, or the value is gone: it "
            "runs, or is blocked in C",
            f"{call_of('threads')}?locals=true shows its frames.",
            frame_id=frame,
            thread_id=thread.id,
        )


def live_frame(frame: looks.LiveFrame, room: int) -> tuple[t.LiveFrame, int]:
    """A frame with as many locals as there is room for; and the room that is left."""
    shown: list[t.LiveLocal] = []
    room -= _FRAME + len(frame.name) + len(frame.path)
    for row in frame.locals:
        room -= len(row.name) + len(row.value)
        if room <= 0:
            break
        shown.append(t.LiveLocal(name=row.name, type=row.type or "", value=row.value))
    return (
        t.LiveFrame(
            id=frame.number,
            name=frame.name,
            path=frame.path,
            line=frame.line,
            locals=shown,
            locals_left_out=frame.total_locals - len(shown),
        ),
        room,
    )


def waits_for(
    row: looks.WaitRow, named: Callable[[int | str | None], tuple[int | None, str | None]]
) -> t.WaitsFor:
    holders = []
    for one in row.by:
        thread_id, name = named(one.key)
        place = None
        if one.place is not None:
            function, path, line = one.place
            place = Location(path=path, line=line, column=1, function=function)
        holders.append(
            t.Holder(
                how=one.how,
                thread_id=thread_id,
                task=one.key if isinstance(one.key, str) else None,
                name=name,
                location=place,
            )
        )
    return t.WaitsFor(
        kind=row.kind, what=row.text, doing=row.doing, value=row.value, held_by=holders
    )


def _cut(session_id: str) -> str:
    read = call_of("frame-variables", session_id, frame_id=0)
    return f"what is beyond {CHARACTERS} characters is left out: {read}?thread_id= has locals"


def _is_busy(server: DebugServer, row: looks.LookRow) -> bool:
    """Whether the kernel says that the thread runs: then it waits in no function in C."""
    if row.wait is None or row.wait.kind != "call" or row.native is None or not server.pid:
        return False
    return procfs.thread_state(server.pid, row.native) == "R"
