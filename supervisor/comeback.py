"""Sessions whose worker is gone at the start of a relay: what their records make of them.

Those that had ended stay as they were. Those that the relay's stop or the machine's ended come
back as `created`, ready for a launch. Those whose worker died by itself have failed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from debug_relay.protocol import state
from debug_relay.protocol.blueprint import SessionRecord
from debug_relay.protocol.sessions import SessionState
from debug_relay.protocol.state import State
from debug_relay.supervisor.spawn import was_born_in_this_boot
from debug_relay.supervisor.store import read_json, set_aside

_FILE: Final = "session.json"


def read_record(folder: Path) -> SessionRecord | None:
    """None where there is none, or one that is corrupt and now set aside."""
    path = folder / _FILE
    value = read_json(path)
    if value is None:
        return None
    try:
        return msgspec.convert(value, SessionRecord)
    except msgspec.ValidationError as error:
        set_aside(path, str(error))
        return None


def holds_what_was_set_aside(folder: Path) -> bool:
    return any(folder.glob(f"{_FILE}.corrupt-*"))


def shown_again(record: SessionRecord, folder: Path) -> SessionState:
    """The public state of a session without its worker."""
    last = record.state
    if last.end_reason == "shutdown" and last.previous_status is not None:
        return _restored(record, last.previous_status)
    if last.status in state.ENDED:
        return last
    if was_born_in_this_boot(folder):
        return msgspec.structs.replace(
            _at_rest(last),
            status=State.FAILED,
            end_reason="crashed",
            previous_status=last.status,
        )
    return _restored(record, last.status)


def _restored(record: SessionRecord, previous: State) -> SessionState:
    last = record.state
    program = last.program
    if program is not None:
        program = None if program.attached else msgspec.structs.replace(program, pid=None)
    return msgspec.structs.replace(
        _at_rest(last),
        status=State.CREATED,
        program=program,
        exit_code=None,
        signal=None,
        end_reason=None,
        passed_limit=None,
        restored=True,
        previous_status=previous,
        missing_env=record.blueprint.missing_env,
        breakpoint_count=len(record.blueprint.breakpoints),
    )


def _at_rest(last: SessionState) -> SessionState:
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
