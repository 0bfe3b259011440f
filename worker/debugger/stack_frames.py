"""The frames of a stopped thread, as debugpy lists them and as callers see them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from debug_relay.protocol.wire import dap

# The file name of bootstrap's signal handler: a main thread that we woke may stop in it.
_WAKE_FILE: Final = "<relay wake>"
_DECORATIONS: Final = (" (Current frame)",)


class FrameList(Struct):
    frames: list[dap.StackFrame]
    total: int


def frame_list(answer: dap.StackTrace) -> FrameList:
    """The program's own frames, without the words that debugpy adds to their names."""
    frames = [frame for frame in answer.stack_frames if not _is_hidden(frame)]
    for frame in frames:
        for decoration in _DECORATIONS:
            frame.name = frame.name.removesuffix(decoration)
    hidden = len(answer.stack_frames) - len(frames)
    return FrameList(frames, max(answer.total_frames - hidden, len(frames)))


def path_of(frame: dap.StackFrame) -> str:
    return frame.source.path if frame.source and frame.source.path else "<unknown>"


def _is_hidden(frame: dap.StackFrame) -> bool:
    return frame.source is not None and (frame.source.path or "").endswith(_WAKE_FILE)
