"""`debug-relay stdio`: an IDE's commands from standard input, events to standard output.

Three threads: this one does the commands, one after the other; one reads lines; one follows the
session's events. The front ends when its input ends, by a signal, by `terminate`, or when the IDE
does not read any more; a relay and a session that it has made end with it.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

from debug_relay.protocol.errors import RelayError
from debug_relay.supervisor.cli.client.address import Address, NoRelay
from debug_relay.supervisor.cli.client.calls import Person, Relay
from debug_relay.supervisor.cli.private_start import PrivateRelay
from debug_relay.supervisor.cli.stdio.commands import Commands, Options
from debug_relay.supervisor.cli.stdio.messages import (
    LONGEST_LINE_BYTES,
    BadLine,
    Command,
    Lines,
    error_event,
    parse,
)
from debug_relay.supervisor.cli.stdio.program import ProgramState

_READ_BYTES: Final = 65536  # One read of the input.
# Commands that are read and not done; the IDE's next ones wait in its pipe.
_MOST_WAITING: Final = 64
# A `terminate` waits this long for the command before it; then the program is ended.
_PATIENCE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.1  # How often a `terminate` that waits looks at the command before it.
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Signalled(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Broken:
    """No more events can be sent."""

    def __init__(self, why: str | None) -> None:
        self.why = why


_Item = Command | BadLine | _Broken | None  # None: the input has ended


def serve(options: Options, address: Address | None, token: str | None, agent: str) -> int:
    """Runs the front until it ends; returns the exit code. Without `address` it has a relay of its
    own, which starts while the IDE writes its first command.
    """
    private = PrivateRelay() if address is None else None
    # An IDE speaks this protocol for a person. The lease is this process's, while it runs.
    person = Person("stdio", os.urandom(32).hex())

    def connect() -> Relay:
        if private is not None:
            return Relay(private.address(), None, agent)
        assert address is not None
        return Relay(address, token, agent, person=person)

    front = _Front(connect, options)
    try:
        for number in _SIGNALS:
            signal.signal(number, _raise_signal)
        return front.run()
    except _Signalled as signalled:
        return 128 + signalled.number
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        front.leave()
        if private is not None:
            private.end()


def _raise_signal(number: int, _frame: FrameType | None) -> NoReturn:
    raise _Signalled(number)


class _Front:
    def __init__(self, connect: Callable[[], Relay], options: Options) -> None:
        self._program = ProgramState()
        self._items: queue.Queue[_Item] = queue.Queue(_MOST_WAITING)
        self._writing = threading.Lock()
        self._began_at = 0.0  # when the command began that is being done
        self._commands = Commands(connect, options, self._program, self._emit, self._break)

    def run(self) -> int:
        threading.Thread(target=self._read, name="input", daemon=True).start()
        try:
            while not self._commands.terminated:
                item = self._items.get()
                if item is None:
                    # All commands are done; a program that is about to stop or end may do so.
                    self._program.settle()
                    return 0
                if isinstance(item, _Broken):
                    return self._report(item)
                if isinstance(item, BadLine):
                    self._emit(error_event(str(item), command=item.command))
                else:
                    self._began_at = time.monotonic()
                    self._commands.perform(item)
        except NoRelay as error:
            return self._report(_Broken(f"No relay answers: {error}"))
        except BrokenPipeError:
            return 0  # the IDE does not read any more
        return 0

    def leave(self) -> None:
        with suppress(RelayError, NoRelay):  # the session, or its relay, is gone
            self._commands.leave()

    def _report(self, broken: _Broken) -> int:
        if broken.why is None:
            return 0
        self._emit(error_event(broken.why))
        return 1

    def _read(self) -> None:
        lines = Lines()
        while data := os.read(0, _READ_BYTES):
            for line in lines.add(data):
                self._take(line)
        for line in lines.end():
            self._take(line)
        self._items.put(None)

    def _take(self, line: bytes | None) -> None:
        item: _Item
        try:
            if line is None:
                raise BadLine(f"The line is longer than {LONGEST_LINE_BYTES} bytes")
            item = parse(line)
        except BadLine as bad:
            item = bad
        self._items.put(item)
        if isinstance(item, Command) and item.name == "terminate":
            threading.Thread(target=self._end_what_it_waits_for, daemon=True).start()

    def _end_what_it_waits_for(self) -> None:
        """Ends the program while the last command before a `terminate` goes on for long: a user who
        ends a debugger does not wait for an evaluation.
        """
        read_at = time.monotonic()
        while not self._commands.terminated:
            time.sleep(_LOOK_SECONDS)
            waits_since = max(read_at, self._began_at)
            if self._items.qsize() == 1 and time.monotonic() - waits_since > _PATIENCE_SECONDS:
                self._commands.end_early()
                return

    def _break(self, why: str | None) -> None:
        self._program.hurry()
        self._items.put(_Broken(why))

    def _emit(self, lines: bytes) -> None:
        with self._writing:
            left = memoryview(lines)
            while left:
                left = left[os.write(1, left) :]
