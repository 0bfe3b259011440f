"""Text of threads and tasks as they are at one moment: what each waits for, frames, locals.

One line a frame, its locals below it, at most about 300 characters a thread. Threads that do the
same are told in one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import UNSET

from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.rendering.text import Line, short

_THREAD: Final = 300  # Characters of one thread, without its first line.
_VALUE: Final = 60  # Characters of one value.
_LOCALS: Final = 200  # Characters of the locals of one frame.
_IDLE_NAMES: Final = 5  # Threads that do the same and are named.


def threads(result: i.ThreadList) -> Iterator[Line]:
    alike: dict[str, list[i.Thread]] = {}
    for thread in result.threads:
        said = _body(thread.frames), thread.waits_for
        key = repr(said) if not any(frame.locals for frame in thread.frames or ()) else ""
        alike.setdefault(key or str(thread.id), []).append(thread)
    for same in alike.values():
        first = same[0]
        if len(same) > 1:
            names = ", ".join(f"{one.id} {short(one.name, 40)}" for one in same[:_IDLE_NAMES])
            more = f", … {len(same) - _IDLE_NAMES} more" if len(same) > _IDLE_NAMES else ""
            yield f"threads {names}{more}:{_waiting(first.waits_for)}"
        else:
            mark = "→ " if first.is_current else ""
            where = f" (child process {first.pid})" if first.is_child else ""
            state = " paused" if first.live is UNSET else ""
            head = f"{mark}thread {first.id} {short(first.name, 60)}{where}{state}:"
            yield head + _waiting(first.waits_for)
        yield from _body(first.frames)
        if first.frames_left_out is not UNSET:
            yield f"  … {first.frames_left_out} frames of its own more"
    for circle in result.deadlocks or ():
        yield f"deadlock: {' waits for '.join(f'thread {one}' for one in [*circle, circle[0]])}"
    if result.note is not UNSET:
        yield f"note: {result.note}"


def _waiting(wait: i.WaitsFor | None | object) -> str:
    if not isinstance(wait, i.WaitsFor):
        return ""
    words = [f" waits for {wait.kind}"]
    if wait.what:
        words.append(short(wait.what, 80))
    if wait.doing and wait.doing not in ("__enter__", "acquire"):
        words.append(f"({wait.doing})")
    if wait.value:
        words.append(short(wait.value, 80))
    text = " ".join(words)
    for holder in wait.held_by[:3]:
        who = f"thread {holder.thread_id} {holder.name or ''}".rstrip()
        if holder.task is not None:
            who = holder.task
        how = "" if holder.how == "is it" else f" {holder.how}"
        at = holder.location
        place = ""
        if at is not None:
            place = f" in {at.function}, {at.path.rpartition('/')[2]}:{at.line}"
        text += f"; {who}{how}{place}" if how else f": {who}"
    return text


def _body(frames: list[i.LiveFrame] | object) -> list[str]:
    lines: list[str] = []
    if not isinstance(frames, list):
        return lines
    room = _THREAD
    for index, frame in enumerate(frames):
        place = f"  #{frame.id} {frame.name} at {frame.path}:{frame.line}"
        if room - len(place) < 0 and index:
            lines.append(f"  … {len(frames) - index} more frames")
            break
        lines.append(place)
        room -= len(place)
        shown = ", ".join(f"{one.name} = {short(one.value, _VALUE)}" for one in frame.locals)
        if shown and room > 0:
            text = "     " + short(shown, max(40, min(_LOCALS, room)))
            if frame.locals_left_out:
                text += f" (+{frame.locals_left_out})"
            lines.append(text)
            room -= len(text)
    return lines
