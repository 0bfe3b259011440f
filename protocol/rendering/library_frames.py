"""Frames of libraries: which they are, and a traceback without what the frames beside it tell."""

from __future__ import annotations

import re
from typing import Final

from debug_relay.protocol.models.stop_report import FoldedFrames

_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_STANDARD: Final = re.compile(r"/lib(?:64)?/python[\d.]+t?/([^/]+)")
_MOST_NAMES: Final = 4  # Libraries that are named where their frames are folded.
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
