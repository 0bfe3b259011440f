"""From the relay's events to the protocol's: one thread follows a session and sends events to the
IDE.

Output is read from the session's log, because its events are cut when a program prints much. All
output before an event is sent before it.
"""

from __future__ import annotations

import base64
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from debug_relay.protocol.errors import RelayError
from debug_relay.supervisor.cli.client.address import NoRelay
from debug_relay.supervisor.cli.stdio.messages import Place, error_event, event
from debug_relay.supervisor.cli.stdio.program import ProgramState
from debug_relay.supervisor.cli.stdio.session_calls import SessionCalls
from debug_relay.supervisor.cli.stdio.values import is_dunder, shown

_POLL_SECONDS: Final = 60  # One long-poll for events.
_PAGE: Final = 1000  # Events, or lines of output, in one reply.
_TEXT_CHARACTERS: Final = 65536  # The text of one `output` event.
_MOST_LOCALS: Final = 1000  # Locals that are compared with those of the previous stop.
_REPORT_BYTES: Final = 1024 * 1024  # The report of one stop.
_TYPES: Final = "stopped,continued,terminated,output,session"
# Ends that the program came to by itself; after others the session is `terminated`.
_OWN_ENDS: Final = frozenset({"target_exited", "target_lost"})


class Follower:
    def __init__(
        self,
        calls: SessionCalls,
        program: ProgramState,
        emit: Callable[[bytes], None],
        broken: Callable[[str | None], None],
        shared: bool,
    ) -> None:
        """`emit` writes lines; `broken` is called with the reason why no more events
        can be sent.
        """
        self._call = calls.call
        self._program = program
        self._emit = emit
        self._broken = broken
        self._shared = shared
        self._events: str | None = None
        self._output: str | None = None
        self._last_stop = 0
        self._thread = threading.Thread(target=self._follow, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def skip(self) -> None:
        """Passes over what a shared session has been through already."""
        page = self._page(0)
        while page.get("events"):
            page = self._page(0)
        self._output = self._call("output", tail=1)["next_cursor"]

    def tell_present_state(self, status: dict[str, Any]) -> None:
        """For an IDE that joins a shared session: where it is now."""
        if status["status"] == "paused":
            known = ("stop_reason", "stop_id", "current_location")
            kept = self._call("history", limit=1).get("items") or [{}]
            hit = kept[0].get("hit_breakpoints") if status["stop_reason"] == "breakpoint" else None
            self._send_stop({**{key: status.get(key) for key in known}, "hit_breakpoint_ids": hit})
        elif status["status"] in ("running", "launching"):
            self._program.becomes("running", lambda: self._emit(event("started")))
        elif status["status"] != "created":
            self._program.becomes("ended")

    def _follow(self) -> None:
        try:
            while self._program.now != "ended" or self._shared:
                for one in self._page(_POLL_SECONDS).get("events", ()):
                    self._send(one["type"], one["body"])
        except RelayError as error:
            self._broken(error.message)
        except NoRelay as error:
            self._broken(f"The relay does not answer any more: {error}")
        except OSError:
            self._broken(None)  # the IDE does not read any more
        except Exception:
            # An IDE that would wait for events for ever is worse off than one without debugger.
            self._broken(f"The debugger made a mistake: {traceback.format_exc(limit=-3)}")

    def _page(self, seconds: float) -> Any:
        page = self._call("events", cursor=self._events, types=_TYPES, limit=_PAGE, timeout=seconds)
        self._events = page["next_cursor"]
        return page

    def _send(self, type: str, body: dict[str, Any]) -> None:
        if type in ("output", "stopped", "terminated"):
            # A program may print before the relay has noted that it runs.
            self._send_start()
            self._send_output()
        if type == "stopped":
            self._send_stop(body)
        elif type == "session" and body.get("status") == "running":
            self._send_start(by_another=self._shared and self._program.now != "running")
        elif type == "terminated":
            self._send_end(body)

    def _send_start(self, by_another: bool = False) -> None:
        if self._program.take_announcement() or by_another:
            self._program.becomes("running", lambda: self._emit(event("started")))

    def _send_stop(self, body: dict[str, Any]) -> None:
        stop_id = body.get("stop_id") or 0
        if stop_id <= self._last_stop:
            return
        self._last_stop = stop_id
        location = _place(body.get("current_location"))
        reason = body.get("reason") or body.get("stop_reason")
        if reason == "exception":
            self._emit(error_event(body.get("text") or "an exception", location=location))
            if not self._shared:
                self._run_on()
                return
        stop: dict[str, Any] = {"reason": reason, "location": location}
        hit = [_number(id) for id in body.get("hit_breakpoint_ids") or ()]
        if reason == "breakpoint" and hit:
            stop["breakpointId"] = hit[0]
        lines = event("stopped", **stop) + b"".join(self._updates(stop_id))
        self._program.becomes("paused", lambda: self._emit(lines))

    def _run_on(self) -> None:
        """The exception was reported; now the program continues, and the exception ends it or its
        thread.
        """
        try:
            self._call("continue", wait=0)
        except RelayError as error:
            self._emit(error_event(error.message))

    def _updates(self, stop_id: int) -> Iterator[bytes]:
        try:
            stop = self._call(
                "snapshot", frames=1, locals=_MOST_LOCALS, source_lines=0, output_bytes=0,
                max_bytes=_REPORT_BYTES,
            )["stop"]  # fmt: skip
        except RelayError:
            return  # somebody else has resumed the program
        if stop["stop_id"] != stop_id:
            return
        known = {variable["name"]: variable for variable in stop.get("locals", ())}
        for change in stop.get("changed", ()):
            variable = known.get(change["name"])
            if variable is not None and not is_dunder(change["name"]):
                yield event("variableUpdate", **shown(variable), frameIndex=0)

    def _send_end(self, body: dict[str, Any]) -> None:
        if body.get("end_reason") in _OWN_ENDS:
            lines = event("exited", exitCode=body.get("exit_code"))
        elif self._program.terminating:
            lines = b""
        else:
            lines = event("terminated")
            if body.get("end_reason") != "terminated" and body.get("error"):
                lines = error_event(body["error"]) + lines
        self._program.becomes("ended", lambda: self._emit(lines))

    def _send_output(self) -> None:
        more = True
        while more:
            page = self._call("output", cursor=self._output, limit=_PAGE)
            self._output, more = page["next_cursor"], page.get("has_more")
            if page.get("dropped"):
                self._emit(error_event(f"{page['dropped']} lines of output were lost"))
            for category, text in _joined(page.get("entries", ())):
                self._emit(event("output", category=category, text=text))


def _joined(entries: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Consecutive lines of one stream as one text, up to a size."""
    category, text = "", ""
    for entry in entries:
        # The relay's own notes are no output of the program's; the IDE shows them beside errors.
        of = "stdout" if entry["category"] == "stdout" else "stderr"
        if text and (of != category or len(text) + len(entry["output"]) > _TEXT_CHARACTERS):
            yield category, text
            text = ""
        category, text = of, text + _text(entry)
    if text:
        yield category, text


def _text(entry: dict[str, Any]) -> str:
    if entry.get("encoding") != "base64":
        return str(entry["output"])
    return base64.b64decode(entry["output"]).decode("utf-8", "backslashreplace")


def _place(location: dict[str, Any] | None) -> Place | None:
    if location is None:
        return None
    return Place(location["path"], location["line"], location.get("column") or 1)


def _number(breakpoint_id: str) -> int:
    return int(breakpoint_id.removeprefix("bp_"))
