"""The exception at which a run stopped: its stack with locals, within the bounds of a report."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from debug_relay.protocol.models.fields import Result, SessionParams
from debug_relay.protocol.models.inspection import (
    FoldedFrames,
    Frame,
    FrameVariables,
    Stack,
    Stacktrace,
    VariableList,
)
from debug_relay.protocol.models.run import RunException, RunFrame, RunLocal
from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.rendering.library_frames import add_fold, brief_traceback, library_of
from debug_relay.protocol.rendering.repeats import repeats_in

_R = TypeVar("_R", bound=Result)
_LEVELS: Final = 1000  # Frames of the stack that are looked at.
_MOST_FRAMES: Final = 100  # Frames of the stack in the report of a run.
_MOST_LOCALS: Final = 100  # Locals of one frame in the report of a run.
_VALUE_CHARACTERS: Final = 500  # One value in the report of a run.
_LOCALS_CHARACTERS: Final = 256 * 1024  # All locals in the report of a run together.
_BARE: Final = 10  # Frames of a stack that is of libraries alone.
# Times that the frames of a recursion are shown: their locals differ.
_SHOWN_TIMES: Final = 2


class _Ask(Protocol):
    async def __call__(self, operation: str, params: SessionParams, kind: type[_R]) -> _R: ...


async def crash_of(state: SessionState, session_id: str, ask: _Ask) -> RunException:
    params = Stacktrace(session_id=session_id, levels=_LEVELS)
    stack = await ask("stacktrace", params, Stack)
    shown, folded = chosen(stack.frames)
    room = _LOCALS_CHARACTERS
    frames: list[RunFrame] = []
    for frame in shown[:_MOST_FRAMES]:
        listed = None
        if room > 0:
            look = FrameVariables(session_id=session_id, frame_id=frame.id, count=_MOST_LOCALS)
            listed = await ask("frame-variables", look, VariableList)
        locals_ = [
            RunLocal(name=one.name, type=one.type, value=_short(one.value))
            for one in (listed.variables if listed else ())
            # No program can use pytest's @py_assert1 and a generator expression's .0.
            if not one.name.startswith(("@", "."))
        ]
        room -= sum(len(one.name) + len(one.value) for one in locals_)
        frames.append(
            RunFrame(
                id=frame.id,
                name=frame.name,
                path=frame.source.path,
                line=frame.line,
                locals=locals_,
                locals_left_out=listed.total - len(listed.variables) if listed else 0,
            )
        )
    last = frames[-1].id if len(shown) > _MOST_FRAMES else stack.total_frames
    raised = state.exception
    return RunException(
        type=raised.type if raised else "",
        message=raised.message if raised else "",
        traceback=brief_traceback(raised.traceback) if raised else None,
        child_pid=stack.child_pid,
        frames=frames,
        folded=[fold for fold in folded if fold.first < last],
        total_frames=stack.total_frames,
    )


def chosen(frames: list[Frame]) -> tuple[list[Frame], list[FoldedFrames]]:
    """The frames that a report shows: where the exception was raised, and the program's own; of a
    recursion the first and the last.
    """
    again: list[FoldedFrames] = []
    repeated: set[int] = set()
    for repeat in repeats_in([(one.name, one.source.path, one.line) for one in frames]):
        first = repeat.first + _SHOWN_TIMES * repeat.period
        last = repeat.end - repeat.period
        if first < last:
            again.append(
                FoldedFrames(first=frames[first].id, count=last - first, repeats=repeat.period)
            )
            repeated.update(range(first, last))
    shown: list[Frame] = []
    folds: list[FoldedFrames] = []
    for index, frame in enumerate(frames):
        library = library_of(frame.source.path, frame.name)
        if index in repeated:
            continue
        if library is not None and index:
            add_fold(folds, frame.id, library)
        else:
            shown.append(frame)
    if all(library_of(frame.source.path, frame.name) for frame in shown):
        return frames[:_BARE], []
    return shown, sorted([*folds, *again], key=lambda fold: fold.first)


def _short(value: str) -> str:
    return value if len(value) <= _VALUE_CHARACTERS else value[: _VALUE_CHARACTERS - 1] + "…"
