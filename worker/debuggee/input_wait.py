"""Finds out when the program waits for input.

It looks soon after each reason to (the program was resumed, it printed, its input was written), and
then less and less often. It does not look at a program that is paused or has ended.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from debug_relay.worker.debuggee.process import Process
from debug_relay.worker.debugger.input_requests import InputRequest
from debug_relay.worker.system.blocked_syscalls import waits_for_input

# The first pause between two looks at whether the program waits for input.
_FIRST_LOOK_SECONDS: Final = 0.03
_LATER_FACTOR: Final = 2.0  # Each pause is this many times the one before.
# The longest pause between two looks at whether the program waits for input.
_LONGEST_PAUSE_SECONDS: Final = 1.0
_KEPT_BYTES: Final = 4096  # The end of the output in which the prompt is looked for.
_PROMPT_CHARACTERS: Final = 1000  # The prompt that is shown.
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r")
_ECHOED: Final = b"Password input may be echoed."
_ECHO_WARNING: Final = (
    "The program asks for a password (getpass) and has no terminal: launch it with pty: true"
)
_LINE_ENDS: Final = (b"\n",)
# On a terminal these keys end a line: Return, and those of an interrupt and of the end of input.
_TYPED_ENDS: Final = (b"\n", b"\r", b"\x03", b"\x04")
_BEGUN_WARNING: Final = "The input sent so far has no line end: input() waits for one"


class InputWatch:
    """Watches one launched program for a wait on its standard input."""

    def __init__(
        self,
        process: Process,
        is_running: Callable[[], bool],
        on_change: Callable[[InputRequest | None, bool], None],
        on_terminal: bool,
    ) -> None:
        """`on_change` is called at each change, with whether this wait is a new one: after a pause
        the same wait continues.
        """
        self._process = process
        self._is_running = is_running
        self._on_change = on_change
        self._line_ends = _TYPED_ENDS if on_terminal else _LINE_ENDS
        self._waiting: InputRequest | None = None
        self._printed_since = b""  # printed since its input was last written
        self._is_same = False  # as the wait that was last reported: nothing printed or sent since
        self._warned = False
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._pause = _FIRST_LOOK_SECONDS

    def printed(self, data: bytes) -> None:
        self._is_same = False
        self._printed_since = (self._printed_since + data)[-_KEPT_BYTES:]
        self._warned = self._warned or _ECHOED in self._printed_since
        self.soon()

    def written(self, data: bytes, eof: bool) -> None:
        """Input was written. A line without its newline does not count: `input()` waits for the
        newline.
        """
        self._begun = not eof and bool(data) and not data.endswith(self._line_ends)
        if not self._begun or any(end in data for end in self._line_ends):
            self._printed_since = b""
        self._is_same = self._warned = False
        self._set(None)
        self.soon()

    def soon(self) -> None:
        """Look soon: there is a reason to."""
        if self._timer is None or self._pause > _FIRST_LOOK_SECONDS:
            self._pause = _FIRST_LOOK_SECONDS
            self._schedule()

    def at_rest(self) -> None:
        """Stop looking: the program is paused or has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._set(None)

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._process.exit is not None or not self._is_running():
            self._set(None)
            return
        stdin = self._process.stdin
        if (
            stdin.is_open
            and stdin.unread() == 0
            and waits_for_input(self._process.pid, stdin.identity)
        ):
            self._process.flush()
            self._set(InputRequest(self._prompt(), self._warning()))
        else:
            self._set(None)
        self._pause = min(self._pause * _LATER_FACTOR, _LONGEST_PAUSE_SECONDS)
        self._schedule()

    def _warning(self) -> str | None:
        return _ECHO_WARNING if self._warned else _BEGUN_WARNING if self._begun else None

    def _prompt(self) -> str | None:
        """The line that the program has begun, empty after a whole line; None if it has printed
        nothing.
        """
        if not self._printed_since:
            return None
        text = _CONTROL.sub("", self._printed_since.decode("utf-8", "replace"))
        return text.rpartition("\n")[2][-_PROMPT_CHARACTERS:]

    def _set(self, waiting: InputRequest | None) -> None:
        if waiting != self._waiting:
            self._waiting = waiting
            self._on_change(waiting, not self._is_same)
            self._is_same = self._is_same or waiting is not None
