"""Log lines, each an event's name and fields, on stderr and in a rotating file.

A thread behind a bounded queue writes each of the two, so a slow disk or a stopped reader of stderr
does not block the event loop. Logging never raises. Values with names that look secret are hidden.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import select
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from debug_relay.protocol.secrets import HIDDEN, hide_secrets, looks_secret
from debug_relay.protocol.system.files import open_regular
from debug_relay.protocol.wire.envelope import timestamp_of
from debug_relay.supervisor.safe_open import open_own

FILE_BYTES: Final = 10 * 1024 * 1024  # One file of the log, before it is rotated.
MOST_FILES: Final = 3  # Files of the log.
# Log lines that wait for the writing thread; further ones are counted and dropped.
_QUEUED_LINES: Final = 2000
_TEXT_CHARACTERS: Final = 16 * 1024  # One text in a line of the log.
_DEEPEST: Final = 6  # Levels of one value in a line of the log.
_RESERVED: Final = frozenset({"ts", "level", "event", "logger", "exception"})
_TOP: Final = "debug_relay"
DROPPED: Final = "log.dropped"  # the event of the line that says how many were lost

Level = Literal["debug", "info", "warning", "error"]
Style = Literal["json", "text"]


def redact(name: str, value: Any) -> Any:
    """The value with secrets hidden, also inside mappings and lists; `name` may reveal one."""
    return _redacted(name, value, _DEEPEST)


def _redacted(name: str, value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if looks_secret(name):
        return HIDDEN
    if isinstance(value, int | float):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {_text(key): _redacted(_text(key), item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted("", item, depth - 1) for item in value]
    return hide_secrets(_text(value))


def _text(value: Any) -> str:
    try:
        text = str(value)
    except Exception as error:
        # An object whose str() fails must not make its log line fail.
        text = f"<{type(value).__name__}: str() raised {type(error).__name__}>"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + "…"


class Log:
    """The log of one module: `log.info("worker.started", session_id=…, pid=…)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, /, **fields: Any) -> None:
        """Logs an error with its traceback."""
        self._write(logging.ERROR, event, fields, error)

    def _write(
        self, level: int, event: str, fields: Mapping[str, Any], error: BaseException | None = None
    ) -> None:
        self._logger.log(level, "%s", event, extra={"fields": fields}, exc_info=error)


def entry(record: logging.LogRecord) -> dict[str, Any]:
    """The line of a record, as a mapping; other libraries' records have their message as event."""
    try:
        event = record.getMessage()
    except Exception:
        event = str(record.msg)  # arguments that do not fit the message
    line: dict[str, Any] = {
        "ts": timestamp_of(record.created),
        "level": record.levelname.lower(),
        "event": hide_secrets(_text(event)),
        "logger": record.name.removeprefix(_TOP + "."),
    }
    for name, value in getattr(record, "fields", {}).items():
        line[name + "_" if name in _RESERVED else name] = redact(name, value)
    if record.exc_info and record.exc_info[1] is not None:
        trace = "".join(traceback.format_exception(record.exc_info[1]))
        line["exception"] = hide_secrets(_text(trace))
    return line


def json_line(record: logging.LogRecord) -> bytes:
    return in_json(entry(record))


def in_json(line: Mapping[str, Any]) -> bytes:
    """A line as JSON; it may contain any value that a caller has sent."""
    try:
        return orjson.dumps(line, default=str) + b"\n"
    except TypeError:  # integers beyond 64 bits
        return json.dumps(line, default=str).encode() + b"\n"


def text_line(record: logging.LogRecord) -> bytes:
    line = entry(record)
    head = f"{line.pop('ts')} {line.pop('level'):<7} {_quoted(line.pop('event'))}"
    logger, trace = line.pop("logger"), line.pop("exception", None)
    shown = [f"{name}={_quoted(value)}" for name, value in line.items()]
    text = " ".join([head, *shown, f"[{logger}]"])
    return (f"{text}\n{trace.rstrip()}\n" if trace else f"{text}\n").encode()


def _quoted(value: Any) -> str:
    """The value as it is if it is one word; else as JSON, so that no value can begin a line."""
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' "='):
        return value
    return json.dumps(value, ensure_ascii=False)


class LineWriter:
    """Writes lines to one destination, in a thread of its own."""

    def __init__(
        self,
        dropped: Callable[[int], bytes],
        write: Callable[[bytes], None],
        linger: float = 0.0,
    ) -> None:
        """`dropped` makes the line that says how many were lost. With `linger` the thread waits
        that long for further lines and writes them together: a thread that wakes for each line
        takes processor time from the call that the line is about.
        """
        self._linger = linger
        self._dropped = dropped
        self._write = write
        # Lines that were lost. Only `put` counts `_refused`; only the thread counts the others.
        self._refused = self._failed = self._reported = 0
        self._given_up = self._finished = False
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_QUEUED_LINES)
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, line: Callable[[], bytes]) -> None:
        """Has the line written that this function makes."""
        try:
            self._waiting.put_nowait(line())
        except Exception:
            # The queue is full, or the line cannot be made. The next line has the count.
            self._refused += 1

    def finish(self, timeout: float) -> bool:
        """Writes the waiting lines within `timeout`; whether all of them were written."""
        ends = time.monotonic() + timeout
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):  # the thread hangs; `join` shows it
                self._waiting.put(None, timeout=timeout)
            self._thread.join(max(0.0, ends - time.monotonic()))
        self._given_up = self._thread.is_alive()
        return not self._given_up

    def _run(self) -> None:
        # Once we have given up, the descriptor may be closed and its number another file's.
        while (lines := self._gathered()) and not self._given_up:
            try:
                self._write(self._gap() + b"".join(lines))
            except (OSError, ValueError):
                # The pipe is closed or the disk is full: we count the lines.
                self._failed += len(lines)

    def _gathered(self) -> list[bytes]:
        """The next lines; an empty list at the end."""
        if self._finished or (line := self._waiting.get()) is None:
            return []
        lines = [line]
        if self._linger:
            time.sleep(self._linger)
            with contextlib.suppress(queue.Empty):
                while (line := self._waiting.get_nowait()) is not None:
                    lines.append(line)
                self._finished = True
        return lines

    @property
    def lost(self) -> int:
        """How many lines were lost and not yet reported by a later line."""
        return self._refused + self._failed - self._reported

    def _gap(self) -> bytes:
        lost = self.lost
        if not lost:
            return b""
        self._reported += lost
        return self._dropped(lost)


class _Handler(logging.Handler):
    """Passes the records of Python's logging to a destination."""

    def __init__(
        self, line: Callable[[logging.LogRecord], bytes], write: Callable[[bytes], None]
    ) -> None:
        super().__init__()
        self._line = line
        self.writer = LineWriter(self._dropped, write)

    def emit(self, record: logging.LogRecord) -> None:
        self.writer.put(lambda: self._line(record))

    def close(self) -> None:
        self.writer.finish(timeout=1.0)
        super().close()

    def _dropped(self, lines: int) -> bytes:
        record = logging.LogRecord(_TOP, logging.WARNING, "", 0, DROPPED, None, None)
        record.fields = {"lines": lines}
        return self._line(record)


def _write_to(descriptor: int, line: bytes) -> None:
    while line:
        try:
            line = line[os.write(descriptor, line) :]
        except BlockingIOError:
            # Another process has made the terminal non-blocking.
            ready = select.poll()
            ready.register(descriptor, select.POLLOUT)
            if not ready.poll(1000):
                raise


class RotatingFile:
    """`relay.log`, `relay.log.1`, …, the newest first, each of at most `limit` bytes."""

    def __init__(
        self, path: Path, limit: int = FILE_BYTES, files: int = MOST_FILES, is_own: bool = True
    ) -> None:
        """If the file `is_own` the relay's, anything else in its place is moved aside."""
        self._path = path
        self._is_own = is_own
        self.moved_aside: str | None = None
        self._limit = limit
        self._files = files
        self._torn = False
        self._descriptor, self._size = self._open()

    def _open(self) -> tuple[int, int]:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        if self._is_own:
            descriptor, moved_to = open_own(self._path, flags)
            self.moved_aside = moved_to or self.moved_aside
        else:
            descriptor = open_regular(self._path, flags)
        return descriptor, os.fstat(descriptor).st_size

    def write(self, line: bytes) -> None:
        if self._size and self._size + len(line) > self._limit:
            self._rotate()
        self._size += len(line)
        # A full disk may have taken half a line; the next line must not continue it.
        line = b"\n" + line if self._torn else line
        self._torn = True
        _write_to(self._descriptor, line)
        self._torn = False

    def _rotate(self) -> None:
        for number in range(self._files - 1, 0, -1):
            older = f"{self._path}.{number}"
            newer = f"{self._path}.{number - 1}" if number > 1 else str(self._path)
            if os.path.exists(newer):
                os.replace(newer, older)
        descriptor, self._size = self._open()
        # Last, so that after a failure above we continue with the old descriptor.
        os.close(self._descriptor)
        self._descriptor = descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class LogOutput:
    """Logging, until it is closed. `file` is the log file, if there is one."""

    def __init__(self, level: Level, style: Style, file: Path | None, stderr: int | None) -> None:
        self.file: Path | None = None
        self._handlers: list[_Handler] = []
        self._rotating: RotatingFile | None = None
        self._root = logging.getLogger()
        self._root_level = self._root.level
        # Other libraries are logged from warnings on, whatever our own level is.
        self._root.setLevel(logging.WARNING)
        self.set_level(level)
        if stderr is not None:
            line = json_line if style == "json" else text_line
            self._add(_Handler(line, lambda data: _write_to(stderr, data)))
        if file is not None:
            self._add_file(file)

    def _add(self, handler: _Handler) -> None:
        self._handlers.append(handler)
        self._root.addHandler(handler)

    def _add_file(self, file: Path) -> None:
        try:
            self._rotating = RotatingFile(file)
        except OSError as error:
            Log(__name__).warning("log.file_failed", path=file, reason=error.strerror)
            return
        self.file = file
        self._add(_Handler(json_line, self._rotating.write))
        if moved_to := self._rotating.moved_aside:
            Log(__name__).error("log.no_file", path=file, moved_to=moved_to)

    def set_level(self, level: Level) -> None:
        logging.getLogger(_TOP).setLevel(level.upper())

    def close(self) -> None:
        """Writes the waiting lines, for a second at most for each destination."""
        written = True
        for handler in self._handlers:
            self._root.removeHandler(handler)
            written = handler.writer.finish(timeout=1.0) and written
            handler.close()
        self._root.setLevel(self._root_level)
        logging.getLogger(_TOP).setLevel(logging.NOTSET)
        if self._rotating is not None and written:
            self._rotating.close()
            self._rotating = None
        self._handlers.clear()


def start(level: Level, style: Style, file: Path | None = None) -> LogOutput:
    """Begins to write lines to stderr and, if one is given, to the file."""
    # If there is no stderr, descriptor 2 may be a socket or a session's file by now.
    return LogOutput(level, style, file, None if sys.stderr is None else 2)
