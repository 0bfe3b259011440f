"""Frames of libraries: which they are, and a traceback without what the frames beside it tell."""

from __future__ import annotations

import re
from typing import Final

from debug_relay.protocol.models.inspection import FoldedFrames, Frame

_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_STANDARD: Final = re.compile(r"/lib(?:64)?/python[\d.]+t?/([^/]+)")
_MOST_NAMES: Final = 4  # Libraries that are named where their frames are folded.
_PLACE: Final = re.compile(r'^  File "(.+)", line \d+')
_TRACEBACK: Final = "Traceback (most recent call last):"
_ENTRY: Final = '  File "'  # One entry of a traceback begins so.


def library_of(path: str) -> str | None:
    """The package or module of a library's file, such as `pytest` or `threading`; None for a file
    of the program's own. The probe's `library_files` decides so in the program.
    """
    for folder in _INSTALLED:
        if folder in path:
            return _plain(path.rpartition(folder)[2].partition("/")[0])
    if path.startswith("<frozen"):
        return _plain(path[1:-1].rpartition(" ")[2].partition(".")[0])
    found = _STANDARD.search(path)
    return _plain(found[1]) if found is not None else None


def _plain(name: str) -> str:
    name = name.removesuffix(".py")
    return name.strip("_") or name


def add_fold(folds: list[FoldedFrames], number: int, library: str) -> None:
    """Count the frame of this number as folded."""
    if not folds or folds[-1].first + folds[-1].count != number:
        folds.append(FoldedFrames(first=number, count=1, libraries=[library]))
        return
    last = folds[-1]
    last.count += 1
    if library not in last.libraries and len(last.libraries) < _MOST_NAMES:
        last.libraries.append(library)


def folded(frames: list[Frame], waits: bool) -> tuple[list[Frame], list[FoldedFrames]]:
    """The frames without those of libraries, but for the library in which the thread has stopped:
    where it `waits` it has only called that. A thread without frames of its own has all.
    """
    own: list[Frame] = []
    folds: list[FoldedFrames] = []
    near = library_of(frames[0].source.path) if frames and not waits else None
    for frame in frames:
        library = library_of(frame.source.path)
        if library is None or library == near:
            own.append(frame)
        else:
            add_fold(folds, frame.id, library)
    return (own, folds) if own else (frames, [])


def folded_traceback(lines: list[str]) -> list[str]:
    """The lines of a traceback; entries of libraries in a row are one line."""
    shown: list[str] = []
    names: list[str] = []
    count = 0
    skips = False
    for line in [*lines, ""]:
        found = _PLACE.match(line)
        if found is not None:
            library = library_of(found[1])
            skips = library is not None
            if library is not None:
                count += 1
                if library not in names:
                    names.append(library)
        elif skips and line.startswith("    "):
            continue  # the source of the entry before
        else:
            skips = False
        if not skips and count:
            frames = f"{count} frame{'s' * (count > 1)}"
            shown.append(f"  … {frames} of {', '.join(names[:_MOST_NAMES])}")
            names, count = [], 0
        if not skips:
            shown.append(line)
    return shown[:-1]


def brief_traceback(text: str | None) -> str | None:
    """The traceback with its last entry only: the frames beside it tell the others. Tracebacks of
    causes stay, because nothing else tells them.
    """
    if text is None or text.count(_TRACEBACK) > 1:
        return text
    entries = text.split(_ENTRY)
    if len(entries) < 3:
        return text
    left_out = f"  … {len(entries) - 2} more, as in frames\n"
    return "".join([entries[0], left_out, _ENTRY, entries[-1]])


def without_traceback(lines: list[str], last: str) -> list[str]:
    """Output lines without the traceback at their end, if it ends with this line."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    if not end or not last or not lines[end - 1].startswith(last):
        return lines
    starts = [at for at, line in enumerate(lines[:end]) if line == _TRACEBACK]
    if len(starts) != 1:
        return lines
    return lines[: starts[0]]
