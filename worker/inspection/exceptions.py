"""Requests the exception at which a thread is stopped; reports it in parts and as a traceback.

Its texts come from the program's own code, which may hang: every question has a bound, and a part
that does not arrive in time is reported as missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models.sessions import ExceptionInfo
from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire.probe_answers import ExceptionReport, RaisedException
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.settings import Settings

_DETAILS_SECONDS: Final = 1.0  # The details of an exception are made within this time.
_TEXT_CHARACTERS: Final = 65536  # A traceback in a report; of a longer one the middle is left out.
_HEAD: Final = "Traceback (most recent call last):\n"
_BETWEEN: Final = {
    "cause": "\nThe above exception was the direct cause of the following exception:\n\n",
    "context": "\nDuring handling of the above exception, another exception occurred:\n\n",
}
_MODES: Final[dict[str, i.BreakMode]] = {
    "HANDLED": "always",
    "UNHANDLED": "unhandled",
    "USER_UNHANDLED": "userUnhandled",
}


class ExceptionReports:
    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        debugging: Debugging,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops

    async def at_stop(self, server: DebugServer, event: dap.StoppedBody) -> ExceptionInfo:
        """The part of the exception that every stop at one reports."""
        assert event.thread_id is not None
        thread_id = self._hub.thread_id(server, event.thread_id)
        try:
            details = await self._probes.raised(thread_id, _DETAILS_SECONDS)
        except RelayError as error:
            if error.code is not Code.DEBUGPY_TIMEOUT:
                raise
            # Its str() hangs in C, or the process evaluates for a caller, which must not delay the
            # stop. pydevd's own text is used; GET …/exception returns everything later.
            message = event.description or "<no message: str() blocks>"
            return ExceptionInfo(type=event.text or "Exception", message=message)
        if details.exception is None:
            return ExceptionInfo(type=event.text or "Exception", message=event.description or "")
        return ExceptionInfo(
            type=details.exception.type,
            full_type_name=details.exception.full_type_name,
            message=details.exception.message,
            traceback=_whole_text(details.exception, details),
            break_mode=_MODES.get(details.how, "always"),
        )

    async def report(self, thread_id: int, safe: bool = False) -> i.ExceptionReport:
        """The whole report. With `safe` none of the program's code is run for its texts."""
        stop = self._stops.threads.of(self._hub.thread(thread_id).id)
        if stop is None or stop.exception is None:
            raise self.not_at_one(thread_id)
        details = await self._probes.raised(thread_id, _DETAILS_SECONDS, safe)
        if details.exception is None:
            raise self.not_at_one(thread_id)
        return i.ExceptionReport(
            **_parts(details.exception),
            thread_id=thread_id,
            break_mode=_MODES.get(details.how, "always"),
            traceback=_whole_text(details.exception, details),
            chain=[
                i.ChainedException(**_parts(one), relation=one.relation, traceback=_own_text(one))
                for one in details.chain
            ],
            chain_truncated=details.chain_truncated,
            repr="safe" if safe else UNSET,
        )

    def not_at_one(self, thread_id: int) -> RelayError:
        stop = self._stops.current
        reason = (
            stop.reason if stop is not None and stop.thread_id == thread_id else "another thread"
        )
        return RelayError(
            Code.INVALID_SESSION_STATE,
            f"Thread {thread_id} is not stopped at an exception: it stopped for {reason}",
            f'{call_of("set-exception-breakpoints")} {{"filters": ["raised"]}} or '
            f'{{"types": ["ValueError"]}}, then {call_of("continue")}.',
            session_id=self._settings.id,
            current_state=self._lifecycle.state.value,
            required_state="paused at an exception",
            stop_reason=reason,
            thread_id=thread_id,
        )


def _parts(exception: RaisedException) -> dict[str, Any]:
    """The fields that an exception has wherever it is reported."""
    return {
        "type": exception.type,
        "full_type_name": exception.full_type_name,
        "message": exception.message,
        "frames": [
            i.RaisedFrame(path=path, line=line or 0, function=function, text=text)
            for path, line, function, text in exception.frames
        ],
        "frames_omitted": exception.frames_omitted,
        "notes": exception.notes,
        "members": [
            i.GroupMember(**_parts(member), traceback=_own_text(member))
            for member in exception.members
        ],
        "members_omitted": exception.members_omitted,
    }


# -- as text


def _whole_text(exception: RaisedException, report: ExceptionReport) -> str:
    """The traceback as Python writes it: causes first, and for each the outermost frame first."""
    parts = []
    for one in reversed(report.chain):
        parts += [_own_text(one), _BETWEEN[one.relation]]
    return _bounded("".join([*parts, _own_text(exception)]))


def _own_text(exception: RaisedException) -> str:
    return _bounded(_HEAD + "".join(_lines(exception)))


def _lines(exception: RaisedException) -> Iterator[str]:
    half = len(exception.frames) // 2
    for index, (path, line, function, text) in enumerate(exception.frames):
        if exception.frames_omitted and index == half:
            yield f"  [{exception.frames_omitted} more frames]\n"
        yield f'  File "{path}", line {line}, in {function}\n'
        if text:
            yield f"    {text}\n"
    name = exception.full_type_name.removeprefix("builtins.").removeprefix("__main__.")
    yield f"{name}: {exception.message}\n" if exception.message else f"{name}\n"
    for note in exception.notes:
        yield f"{note}\n"
    for number, member in enumerate(exception.members, 1):
        yield f"  +---------------- {number} ----------------\n"
        for text in "".join([_HEAD, *_lines(member)]).splitlines():
            yield f"  | {text}\n"


def _bounded(text: str) -> str:
    if len(text) <= _TEXT_CHARACTERS:
        return text
    return f"{text[: _TEXT_CHARACTERS // 2]}\n[…]\n{text[-_TEXT_CHARACTERS // 2 :]}"
