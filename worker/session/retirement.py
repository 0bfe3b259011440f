"""An ended session's worker goes when nobody needs it: what it leaves, what the next takes over.

Stop reports, output and events are in the session's rings already, its blueprint in its record.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from debug_relay.protocol.models.retired_session import FILE, Aftermath
from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.state import State
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.limits import usage_report as resources
from debug_relay.worker.storage.disk import write_atomically

if TYPE_CHECKING:
    from debug_relay.worker.session.session import Session


def may_retire(session: Session) -> bool:
    """Nothing is left that only this process can look after or tell."""
    target = session.target
    return (
        session.state is State.TERMINATED
        and not session.driving.locked()
        and session.lease.shown() is None
        and not session.traces.has_rows
        and (target is None or target.attached or target.processes() == [])
    )


async def leave(session: Session) -> None:
    """Raises OSError where the disk does not take it."""
    aftermath = Aftermath(
        breakpoints=await session.breakpoints.listed(None, None),
        exception_breakpoints=await session.exceptions.shown(),
        watches=session.watches.listed(),
        resources=await resources.report(session),
    )
    await session.disk.run(partial(write_atomically, _path(session), encode_json(aftermath)))


def take_over(session: Session, ended: SessionState) -> None:
    """The session is as its last worker has left it; its blueprint was taken over before."""
    session.program = ended.program
    session.limits.passed = ended.passed_limit
    path = _path(session)
    try:
        left = msgspec.json.decode(path.read_bytes(), type=Aftermath)
        path.unlink()  # from now on this worker is asked
    except (OSError, msgspec.MsgspecError):
        return  # damaged or never written: counts begin anew
    session.breakpoints.count_on({one.id: one.hit_count for one in left.breakpoints})
    session.watches.take_over(left.watches)


def _path(session: Session) -> Path:
    return Path(session.params.session_dir) / FILE
