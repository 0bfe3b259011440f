"""Sessions whose worker is gone when a relay starts: their state, from their records.

Sessions that had ended or failed stay so. All others are restored as `created`, ready for a
launch: whatever ended their worker ended the relay too (its stop, a reboot, a container's restart,
an OOM kill), or no relay was there to see it.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import msgspec

from debug_relay.protocol import state
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.blueprint import SessionRecord
from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.state import State
from debug_relay.protocol.system import json_file
from debug_relay.supervisor.storage.json_files import read_json, set_aside

_FILE: Final = "session.json"


def read_record(folder: Path) -> SessionRecord | None:
    """The record in this directory; None if there is none, or it is corrupt and now set aside."""
    path = folder / _FILE
    value = read_json(path)
    if value is None:
        return None
    try:
        return msgspec.convert(value, SessionRecord)
    except msgspec.ValidationError as error:
        set_aside(path, str(error))
        return None


def record_end(folder: Path, shown: SessionState, events_end: int) -> None:
    """Write what the worker would have written at its session's end."""
    record = read_record(folder)
    if record is not None:
        record = msgspec.structs.replace(record, state=shown, events_end=events_end)
        json_file.write(folder / _FILE, record)


def holds_what_was_set_aside(folder: Path) -> bool:
    return any(folder.glob(f"{_FILE}.corrupt-*"))


def state_without_worker(record: SessionRecord) -> SessionState:
    """The public state of a session without its worker."""
    last = record.state
    if last.end_reason == "shutdown" and last.previous_status is not None:
        return _restored(record, last.previous_status)
    return last if last.status in state.ENDED else _restored(record, last.status)


def failed(last: SessionState, exit_status: int | None) -> SessionState:
    """The public state of a session whose worker has died while we watched. `exit_status` is
    what `os.waitstatus_to_exitcode` returns, or None if the kernel did not tell.
    """
    signal_name, code = None, exit_status
    if exit_status is not None and exit_status < 0:
        signal_name, code = _name_of(-exit_status), None
    return msgspec.structs.replace(
        _without_stop(last),
        status=State.FAILED,
        end_reason="crashed",
        previous_status=last.status,
        worker_signal=signal_name,
        worker_exit_code=code,
    )


def how_its_worker_ended(shown: SessionState) -> str:
    """One sentence for an error message."""
    if shown.worker_signal is not None:
        return f"The session's worker process was ended by {shown.worker_signal}"
    if shown.worker_exit_code is not None:
        return f"The session's worker process ended with exit code {shown.worker_exit_code}"
    return (
        "The session's worker process has ended; its exit status went to its parent, which is not "
        "this relay"
    )


def without_worker(operation: str, id: str, folder: Path, last: SessionState | None) -> RelayError:
    """The refusal of an operation that only the session's worker could do."""
    base = f"/api/v1/sessions/{id}"
    if last is not None and last.status is State.TERMINATED:
        return RelayError(
            Code.INVALID_SESSION_STATE,
            f"Cannot {operation}: the program ended a while ago, and its worker has retired",
            f"GET {base}/output and GET {base} still answer. Create a new session to continue.",
            session_id=id,
            current_state=last.status.value,
        )
    return RelayError(
        Code.SESSION_CRASHED,
        f"Cannot {operation}: "
        + (how_its_worker_ended(last) if last else "The session's worker process is gone"),
        f"GET {base}/output still answers{_last_words(folder)}. DELETE {base} and create a new "
        "session.",
        session_id=id,
        status=last.status.value if last else None,
        worker_signal=last.worker_signal if last else None,
        worker_exit_code=last.worker_exit_code if last else None,
    )


def _last_words(folder: Path) -> str:
    written = [
        str(path)
        for path in (folder / "worker.log", folder / "worker.err")
        if path.exists() and path.stat().st_size
    ]
    return f"; what the worker wrote last is in {' and '.join(written)}" if written else ""


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _restored(record: SessionRecord, previous: State) -> SessionState:
    last = record.state
    program = last.program
    if program is not None:
        program = None if program.attached else msgspec.structs.replace(program, pid=None)
    return msgspec.structs.replace(
        _without_stop(last),
        status=State.CREATED,
        program=program,
        exit_code=None,
        signal=None,
        end_reason=None,
        passed_limit=None,
        restored=True,
        previous_status=previous,
        missing_env=record.blueprint.missing_env,
        missing_fields=record.blueprint.missing_fields,
        breakpoint_count=len(record.blueprint.breakpoints),
    )


def _without_stop(last: SessionState) -> SessionState:
    return msgspec.structs.replace(
        last,
        stop_reason=None,
        current_location=None,
        stopped_thread_id=None,
        stopped_threads=[],
        exception=None,
        waiting_for_input=False,
        prompt=None,
        warning=None,
    )
