"""The terminal of a person: colour, columns, and progress. A pipe gets plain text.

Colour is for terminals only, and never with `NO_COLOR` or `TERM=dumb`. Progress is on stderr.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
_PROGRESS_AFTER_SECONDS = 1.0  # A shorter wait shows nothing.
_PROGRESS_EACH_SECONDS = 0.5  # The progress that is shown is no older.
_NARROWEST = 40  # Columns of a terminal that says that it has fewer.
_NARROWEST_COLUMN = 24  # Text is not wrapped into less; the terminal breaks it then.
_STATUS_COLOURS = {"paused": YELLOW, "running": GREEN, "failed": RED, "terminated": DIM}
# The forms of the relay's text answers: `protocol/rendering/`.
_PAINTED = (
    (re.compile(r"^→ .*$"), "1;33"),  # the line at which the program is
    (re.compile(r"^error [A-Z_]+:"), "1;31"),
    (re.compile(r"^exception:.*$"), "1;31"),
    (re.compile(r"^deadlock: .*$"), "1;31"),
    (re.compile(r"^thread \d+.*?(?=: waits|$)"), BOLD),
    (re.compile(r"^next:"), CYAN),
    (re.compile(r"^(stop \d+|paused) \(.*?\)"), "1;33"),
    (re.compile(r"^\| .*$"), DIM),
    (re.compile(r"← .*$"), "35"),
    (re.compile(r"^ *#\d+ "), BOLD),
)
# A program's text must not move the cursor, or change the title, of the terminal that shows it.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def has_colour(stream: TextIO | None = None) -> bool:
    """Whether escape sequences are welcome on the stream."""
    stream = stream or sys.stdout
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def is_terminal() -> bool:
    return sys.stdout.isatty()


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and has_colour(stream) else text


def status_colour(status: str) -> str:
    return _STATUS_COLOURS.get(status, "")


def harmless(text: str) -> str:
    """The text without control characters; line ends and tabs stay."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def painted(text: str, stream: TextIO | None = None) -> str:
    """A text answer of the relay, with the lines that matter in colour."""
    if not has_colour(stream):
        return text
    return "\n".join(_painted_line(line) for line in harmless(text).split("\n"))


def _painted_line(line: str) -> str:
    for pattern, colour in _PAINTED:
        if found := pattern.search(line):
            start, end = found.span()
            return f"{line[:start]}\x1b[{colour}m{line[start:end]}\x1b[0m{line[end:]}"
    return line


def print_text(text: str) -> None:
    """Prints the text on stdout; characters that its encoding lacks are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def complain(text: str, stream: TextIO | None = None) -> None:
    """Prints an error on stderr, or where the command's errors go."""
    stream = stream or sys.stderr
    encoding = stream.encoding or "utf-8"
    shown = painted(text, stream).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(shown.rstrip("\n") + "\n")
    stream.flush()


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: str = "", wrap: bool = False
) -> Iterator[str]:
    """Lines of aligned columns; those whose heads stand in `right` are aligned there.

    On a terminal the last column ends at the edge: it is cut, so that a row stays one line, or with
    `wrap` continues below itself.
    """
    rows = [[harmless(cell).replace("\n", "\\n") for cell in row] for row in rows]
    # A column in which no row has anything says nothing.
    used = [n for n in range(len(head)) if any(row[n] for row in rows)]
    widths = {n: max(len(head[n]), *(len(row[n]) for row in rows)) for n in used}
    columns = _columns() if is_terminal() else 0
    for number, row in enumerate([head, *rows]):
        cells = [
            row[n].rjust(widths[n]) if head[n] in right.split() else row[n].ljust(widths[n])
            for n in used
        ]
        line = "  ".join(cells).rstrip()
        rest: list[str] = []
        if columns and len(line) > columns:
            start = sum(widths[n] + 2 for n in used[:-1])
            if wrap and columns - start >= _NARROWEST_COLUMN:
                line, *rest = _wrapped(line, start, columns)
            elif not wrap:
                line = line[: columns - 1] + "…"
        if number == 0:
            yield paint(line, BOLD)
        else:
            words = {cell: status_colour(cell) for cell in row if cell in _STATUS_COLOURS}
            for word, colour in words.items():
                line = line.replace(word, paint(word, colour), 1)
            yield line
        yield from rest


def _wrapped(line: str, start: int, columns: int) -> list[str]:
    """The line, broken at blanks; what follows its first line begins at column `start`."""
    from textwrap import wrap

    pieces = wrap(line[start:], columns - start) or [""]
    return [line[:start] + pieces[0], *(" " * start + piece for piece in pieces[1:])]


def _columns() -> int:
    """The terminal's width: COLUMNS comes first, as everywhere, and some terminals have no size."""
    try:
        said = int(os.environ.get("COLUMNS") or 0)
        return max(said or os.get_terminal_size(sys.stdout.fileno()).columns or 80, _NARROWEST)
    except (OSError, ValueError):
        return 80


@contextmanager
def progress(words: str) -> Iterator[Callable[[], None]]:
    """Shows on a terminal that the command waits, and for how long, from the first second on.

    It yields a function that ends it early, for a command that has something better to show.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    over = threading.Event()
    began = time.monotonic()

    def show() -> None:
        wait = _PROGRESS_AFTER_SECONDS
        while not over.wait(wait):
            wait = _PROGRESS_EACH_SECONDS
            seconds = int(time.monotonic() - began)
            sys.stderr.write(f"\r\x1b[K{words} … {seconds} s")
            sys.stderr.flush()
        if wait != _PROGRESS_AFTER_SECONDS:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()

    def end() -> None:
        over.set()
        thread.join()

    try:
        yield end
    finally:
        end()
