"""Text of threads and tasks as they are at one moment: what each waits for, frames, locals.

One line a frame, its locals below it, at most about 300 characters a thread. Of several threads at
the same place the first is shown, and the others are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from msgspec import UNSET

from debug_relay.protocol.models import threads as t
from debug_relay.protocol.rendering.library_frames import is_debuggers, library_of
from debug_relay.protocol.rendering.repeats import repeats_in
from debug_relay.protocol.rendering.text import Line, plural, short

_T = TypeVar("_T")
_THREAD: Final = 300  # Characters of one thread, without its first line.
_VALUE: Final = 60  # Characters of one value.
_LOCALS: Final = 160  # Characters of the locals of one frame.
_ALIKE: Final = 2  # Threads at one place that are all shown; of more only the first.
_BARE: Final = 3  # Frames of a thread that runs no code of the program.
_HOLDERS: Final = 3  # Threads or tasks that could end a wait.
_NAMED: Final = 5  # Others at that place that are named.


def threads(result: t.ThreadList) -> Iterator[Line]:
    groups: dict[object, list[t.Thread]] = {}
    outside = result.outside or []
    read = {one.pid for one in outside}
    for thread in result.threads:
        if thread.last_known and thread.pid in read:
            continue
        groups.setdefault(_doing(thread.waits_for, thread.frames), []).append(thread)
    for same in groups.values():
        shown = _first_of(same)
        for thread in shown:
            mark = "→ " if thread.is_current else ""
            where = f" (child process {thread.pid})" if thread.is_child else ""
            state = " paused" if thread.live is UNSET else ""
            head = f"{mark}thread {thread.id} {short(thread.name, 60)}{where}{state}:"
            yield head + _waiting(thread.waits_for)
            yield from _body(thread.frames)
            if thread.frames_left_out is not UNSET:
                yield f"  … {plural(thread.frames_left_out, 'more frame')} of its own"
        yield from _others(
            "thread", [f"{one.id} {short(one.name, 40)}" for one in same], len(shown)
        )
    for circle in result.deadlocks or ():
        yield f"deadlock: {' waits for '.join(f'thread {one}' for one in [*circle, circle[0]])}"
    for one in outside:
        yield from stacks(one)
    if result.note is not UNSET:
        yield f"note: {result.note}"


def briefly(listed: list[t.Thread]) -> Iterator[Line]:
    """One line for each thread; of several that are at one place the first, and names of others."""
    groups: dict[str, list[t.Thread]] = {}
    for thread in listed:
        mark = "→" if thread.is_current else " "
        where = f" (child process {thread.pid})" if thread.is_child else ""
        place = thread.current_location
        at = f" {place.path}:{place.line} in {place.function}" if place is not None else ""
        pending = ", stops when it returns from C" * thread.pause_pending
        before = " (as last known)" * thread.last_known
        groups.setdefault(f"{mark}\n{thread.status}{where}{at}{pending}{before}", []).append(thread)
    for key, same in groups.items():
        mark, doing = key.split("\n", 1)
        shown = _first_of(same)
        for thread in shown:
            yield f"{mark} {thread.id} {short(thread.name, 80)}: {doing}"
        yield from _others(
            "thread", [f"{one.id} {short(one.name, 40)}" for one in same], len(shown)
        )


def tasks_briefly(listed: list[t.Task]) -> Iterator[Line]:
    """The state of each task and the program's own frames; of several that are alike the first."""
    groups: dict[tuple[str, ...], list[t.Task]] = {}
    for task in listed:
        waits = f", waits for {short(task.waiting_for, 200)}" if task.waiting_for else ""
        ended = f", raised {short(task.exception, 200)}" if task.exception else ""
        doing = f"{short(task.coroutine, 200)}: {task.state}{waits}{ended}"
        own = [one for one in task.frames if library_of(one.path, one.name) is None]
        frames = [f"{one.name} at {one.path}:{one.line}" for one in own or task.frames]
        groups.setdefault(("→" if task.current else " ", doing, *frames), []).append(task)
    for (mark, doing, *frames), same in groups.items():
        shown = _first_of(same)
        for task in shown:
            yield f"{mark} {short(task.name, 80)} {doing}"
            yield from (f"    {frame}" for frame in frames)
        yield from _others("task", [short(one.name, 40) for one in same], len(shown))


def tasks(result: t.TaskList) -> Iterator[Line]:
    groups: dict[object, list[t.Task]] = {}
    for task in result.tasks:
        frames = [(frame.path, frame.line) for frame in task.frames]
        key = task.state, task.exception, _waiting(task.waits_for), repr(frames)
        groups.setdefault(key, []).append(task)
    for same in groups.values():
        shown = _first_of(same)
        for task in shown:
            mark = "→ " if task.current else ""
            state = "" if task.state == "pending" else f" {task.state}"
            ended = f", raised {short(task.exception, 200)}" if task.exception else ""
            head = f"{mark}{short(task.name, 60)} {short(task.coroutine, 80)}{state}{ended}"
            wait = _waiting(task.waits_for)
            yield f"{head}:{wait}" if wait else head
            yield from _body(
                [
                    t.LiveFrame(
                        id=number,
                        name=frame.name,
                        path=frame.path,
                        line=frame.line,
                        locals=frame.locals or [],
                        locals_left_out=frame.locals_left_out or 0,
                    )
                    for number, frame in enumerate(task.frames)
                ]
            )
        yield from _others("task", [short(one.name, 40) for one in same], len(shown))
    if not result.total:
        yield "no asyncio tasks"
    elif result.total != len(result.tasks):
        yield f"… {result.total} in all"
    for circle in result.deadlocks or ():
        yield f"deadlock: {' waits for '.join([*circle, circle[0]])}"
    if result.note is not UNSET:
        yield f"note: {result.note}"


def stacks(result: t.Stacks) -> Iterator[Line]:
    """The stacks of a process that is not debugged: the program's frames, the others counted."""
    groups: dict[object, list[t.StackThread]] = {}
    threads = [thread for thread in result.threads if not is_debuggers(thread)]
    for thread in threads:
        places = [(one.filename, one.line, one.name, len(one.locals)) for one in thread.frames]
        groups.setdefault(repr(places), []).append(thread)
    for same in groups.values():
        first = same[0]
        state = ", has the interpreter" if first.owns_gil else ", runs" if first.active else ""
        yield f"thread {_name_of(first)}{state}:"
        own = [
            t.LiveFrame(
                id=number,
                name=frame.name,
                path=frame.filename,
                line=frame.line,
                locals=[
                    t.LiveLocal(name=one.name, type="", value=one.value or "?")
                    for one in frame.locals
                    if not one.name.startswith("@")
                ],
            )
            for number, frame in enumerate(first.frames)
            if library_of(frame.filename, frame.name) is None
        ]
        if own and own[0].id:
            yield f"  … {_called(first.frames[: own[0].id])}"
        if own:
            yield from _body(own)
        else:
            yield from (f"  #{n} {_place(one)}" for n, one in enumerate(first.frames[:_BARE]))
        yield from _others("thread", [_name_of(one) for one in same], 1)
    if len(threads) < len(result.threads):
        yield f"({plural(len(result.threads) - len(threads), 'thread')} of the debugger left out)"


def _first_of(same: list[_T]) -> list[_T]:
    """The threads or tasks that are shown of those at one place."""
    return same if len(same) <= _ALIKE else same[:1]


def _others(what: str, names: list[str], shown: int) -> Iterator[str]:
    """A line that names those at the same place that are not shown, if there are any."""
    count = len(names) - shown
    if not count:
        return
    more = f", … {count - _NAMED} more" if count > _NAMED else ""
    named = ", ".join(names[shown : shown + _NAMED])
    verb = "is" if count == 1 else "are"
    yield f"  {plural(count, what)} {verb} at the same place: {named}{more}"


def _name_of(thread: t.StackThread) -> str:
    number = thread.os_thread_id or thread.thread_id
    return f"{short(thread.thread_name or '', 60)} {number}".strip()


def _place(frame: t.StackFrame) -> str:
    return f"{frame.name} at {frame.filename}:{frame.line}"


def _called(frames: list[t.StackFrame]) -> str:
    """The frames of libraries above the program's own: the outermost says what it waits in."""
    count = f" and {len(frames) - 1} more" if len(frames) > 1 else ""
    last = frames[-1]
    return f"in {last.name} of {last.filename.rpartition('/')[2]}:{last.line}{count}"


def _doing(wait: object, frames: list[t.LiveFrame] | object) -> object:
    """Equal for threads that are at the same place and wait for the same."""
    places = [(one.path, one.line) for one in frames] if isinstance(frames, list) else []
    what = (wait.kind, wait.what, wait.held_by) if isinstance(wait, t.WaitsFor) else None
    return repr((places, what))


def _place_of(frame: t.LiveFrame) -> tuple[str, int]:
    return frame.path, frame.line


def _waiting(wait: t.WaitsFor | None | object) -> str:
    if not isinstance(wait, t.WaitsFor):
        return ""
    words = [f" waits for {wait.kind}"]
    if wait.what:
        words.append(short(wait.what, 80))
    if wait.doing and wait.doing not in ("__enter__", "acquire", "run_forever"):
        words.append(f"({wait.doing})")
    if wait.value:
        words.append(short(wait.value, 80))
    text, listed = " ".join(words), False
    for holder in wait.held_by[:_HOLDERS]:
        who = f"thread {holder.thread_id} {holder.name or ''}".rstrip()
        if holder.task is not None:
            who = holder.task
        how = "" if holder.how == "is it" else f" {holder.how}"
        at = holder.location
        place = ""
        if at is not None:
            place = f" in {at.function}, {at.path.rpartition('/')[2]}:{at.line}"
        if holder.task is None and holder.thread_id is None:
            text += f"; {holder.how}"
        else:
            text += f"; {who}{how}{place}" if how else f"{', ' if listed else ': '}{who}"
            listed = listed or not how
    if len(wait.held_by) > _HOLDERS:
        text += f", … {len(wait.held_by) - _HOLDERS} more"
    if not wait.held_by and wait.kind in ("lock", "rlock"):
        text += "; its holder is not known"
    return text


def _cut(value: str, longest: int) -> str:
    """A value without its end: how much is missing is worth no characters beside many others."""
    return short(value if len(value) <= longest else value[: longest - 1] + "…")


def _body(frames: list[t.LiveFrame] | object) -> list[str]:
    """One line for each frame and one for its locals, as far as there is room; of a recursion the
    first time.
    """
    lines: list[str] = []
    if not isinstance(frames, list):
        return lines
    repeats = list(repeats_in([(frame.name, *_place_of(frame)) for frame in frames]))
    again = {one.first + one.period: one for one in repeats}
    room, at = _THREAD, 0
    while at < len(frames):
        repeat = again.get(at)
        if repeat is not None:
            times = "the same line" if repeat.period == 1 else f"the same {repeat.period} frames"
            lines.append(f"  #{frames[at].id} to #{frames[repeat.end - 1].id}: {times}")
            at = repeat.end
            continue
        frame = frames[at]
        place = f"  #{frame.id} {frame.name} at {frame.path}:{frame.line}"
        if room - len(place) < 0 and at:
            lines.append(f"  … {plural(len(frames) - at, 'more frame')}")
            break
        lines.append(place)
        room -= len(place)
        shown = ", ".join(f"{one.name} = {_cut(one.value, _VALUE)}" for one in frame.locals)
        if shown and room > 0:
            text = "     " + short(shown, max(40, min(_LOCALS, room)))
            if frame.locals_left_out:
                text += f" (+{frame.locals_left_out})"
            lines.append(text)
            room -= len(text)
        at += 1
    return lines
