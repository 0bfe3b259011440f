"""Frames of libraries: which they are, and a traceback without what the frames beside it tell."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

from debug_relay.protocol.models.inspection import FoldedFrames, Frame
from debug_relay.protocol.models.threads import StackThread
from debug_relay.protocol.rendering.repeats import repeats_in
from debug_relay.protocol.rendering.text import plural

_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_STANDARD: Final = re.compile(r"/lib(?:64)?/python[\d.]+t?/([^/]+)")
_SCRIPT: Final = re.compile(r"/bin/([^/.]+)$")
_BOOTSTRAP: Final = (
    "/proc/self/fd/"  # A launched program's first frames are of a file without name.
)
# Threads of the debugger: how they are called, where they run.
_DEBUGGERS: Final = ("pydevd.", "debug relay")
_DEBUGGER_FILES: Final = ("<frozen relay probe>", "/pydevd")
_MOST_NAMES: Final = 4  # Libraries that are named where their frames are folded.
_PLACE: Final = re.compile(r'^  File "(.+)", line \d+(?:, in (.+))?')
_TRACEBACK: Final = "Traceback (most recent call last):"
_ENTRY: Final = '  File "'  # One entry of a traceback begins so.
_CHAINED: Final = ("The above exception was", "During handling of the above")


def library_of(path: str, function: str) -> str | None:
    """The package or module of a library's file, such as `pytest` or `threading`; None for a file
    of the program's own. The probe's `library_files` decides so in the program.
    """
    if function == "<module>" and (script := _SCRIPT.search(path)) is not None:
        return script[1]  # an installed command, which calls its package
    for folder in _INSTALLED:
        if folder in path:
            return _plain(path.rpartition(folder)[2].partition("/")[0])
    if path.startswith(_BOOTSTRAP):
        return "relay"
    if path.startswith("<frozen"):
        return _plain(path[1:-1].rpartition(" ")[2].partition(".")[0])
    found = _STANDARD.search(path)
    return _plain(found[1]) if found is not None else None


def is_debuggers(thread: StackThread) -> bool:
    """Whether it is a thread of the debugger, in a process that a relay debugs."""
    named = (thread.thread_name or "").startswith(_DEBUGGERS)
    return named and any(mark in one.filename for one in thread.frames for mark in _DEBUGGER_FILES)


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
    """The frames without those of libraries, but for those at the top, of the library in which the
    thread has stopped: where it `waits` it has only called that. A thread without frames of its own
    has all.
    """
    own: list[Frame] = []
    folds: list[FoldedFrames] = []
    near = library_of(frames[0].source.path, frames[0].name) if frames and not waits else None
    is_near = not waits
    for frame in frames:
        library = library_of(frame.source.path, frame.name)
        is_near = is_near and library == near
        if library is None or is_near:
            own.append(frame)
        else:
            add_fold(folds, frame.id, library)
    return (own, folds) if own else (frames, [])


def folded_traceback(lines: list[str]) -> list[str]:
    """The lines of a traceback; entries of libraries in a row are one line, and so are those that a
    recursion repeats.
    """
    shown: list[str] = []
    entries: list[tuple[str, ...]] = []
    for line in lines:
        if _PLACE.match(line) is not None:
            entries.append((line,))
        elif entries and line.startswith("    "):
            entries[-1] = (*entries[-1], line)
        else:
            shown += _entries(entries)
            entries = []
            shown.append(line)
    return shown + _entries(entries)


def _entries(entries: list[tuple[str, ...]]) -> list[str]:
    """The lines of entries in a row."""
    shown: list[str] = []
    done = 0
    for repeat in repeats_in([entry[0] for entry in entries]):
        first = repeat.first + repeat.period
        shown += _without_libraries(entries[done:first])
        times = plural(repeat.times - 1, "more time")
        those = "frame" if repeat.period == 1 else f"{repeat.period} frames"
        shown.append(f"  … the {those} above, {times}")
        done = repeat.end
    return shown + _without_libraries(entries[done:])


def _without_libraries(entries: list[tuple[str, ...]]) -> list[str]:
    shown: list[str] = []
    for is_own, some in groupby(entries, key=lambda entry: _library_in(entry[0]) is None):
        same = list(some)
        if is_own:
            shown += [line for entry in same for line in entry]
        else:
            names = dict.fromkeys(_library_in(entry[0]) or "" for entry in same)
            libraries = ", ".join(list(names)[:_MOST_NAMES])
            shown.append(f"  … {plural(len(same), 'frame')} of {libraries}")
    return shown


def _library_in(line: str) -> str | None:
    found = _PLACE.match(line)
    return library_of(found[1], found[2] or "") if found is not None else None


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


def without_traceback(lines: list[str], raised: str, cut: bool) -> list[str]:
    """Output lines without the traceback at their end, if it is that of what was `raised`, type and
    message; those of its causes stay, because nothing else tells them. The output may be `cut`: of
    a long traceback its beginning is missing.
    """
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    first, *more = raised.splitlines() or [""]
    said = end - 1 - len(more)
    # The type may have its module in front, and a suggestion may follow the message.
    if said < 0 or lines[said + 1 : end] != more or first not in lines[said]:
        return lines
    starts = [at for at, line in enumerate(lines[:said]) if line.endswith(_TRACEBACK)]
    if not starts:
        is_rest = cut and all(not line or line[0] == " " for line in lines[1:said])
        return [] if is_rest else lines
    last = starts[-1]
    while len(starts) > 1 and lines[starts[-1] - 2].startswith(_CHAINED):
        starts.pop()
    before = lines[starts[-1]].removesuffix(_TRACEBACK)  # such as a prompt
    kept = folded_traceback(lines[starts[-1] : last])
    return lines[: starts[-1]] + [before] * (before != "" and not kept) + kept
