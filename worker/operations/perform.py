"""Performs one operation for one caller: the same way for every front."""

from __future__ import annotations

from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.fields import Params
from debug_relay.protocol.models.inspection import Evaluated, VariableSet
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.rendering import output_withheld
from debug_relay.protocol.state import ENDED, State
from debug_relay.worker.operations.call import Call
from debug_relay.worker.operations.handlers import HANDLERS
from debug_relay.worker.session.session import Session

# A call that failed because a connection was lost waits this long for the program's end.
_END_SECONDS = 0.5


async def perform(call: Call, params: Params) -> Struct:
    """The result of the operation that the call's head names; raises RelayError."""
    session, operation = call.session, call.head.operation
    before = session.lifecycle.state, session.stops.stop_id
    try:
        with session.access.calling(operation, call.head.caller, call.head.if_stop):
            result = await HANDLERS[operation](call, params)
        if _changes_values(result):
            session.when_changed()
        # The change that the reply reports is on disk by now, unless the disk refuses it.
        await session.record.settled()
        return result if call.reads_output else output_withheld.in_result(result)
    except RelayError as error:
        if not call.reads_output:
            output_withheld.in_error(error)
        moved = before != (session.lifecycle.state, session.stops.stop_id)
        looking = before[0] is State.PAUSED and not OPERATIONS[operation].drives
        if error.code is Code.DEBUGPY_ERROR and looking and moved:
            # The connection is lost a moment before the kernel reports the end.
            if not session.hub.servers:
                await session.publication.until(
                    lambda: session.lifecycle.state in ENDED, _END_SECONDS, call.abandoned
                )
            raise _moved_on(operation, session) from error
        raise


def _changes_values(result: Struct) -> bool:
    """Whether the program's variables may differ now: one was set, or a statement was run."""
    if isinstance(result, Evaluated):
        return result.result is None and result.error is None
    return isinstance(result, VariableSet)


def _moved_on(operation: str, session: Session) -> RelayError:
    """The error for a call during which the program ended, or another caller resumed it."""
    if session.lifecycle.state in ENDED:
        how = (
            f"by {session.lifecycle.signal}"
            if session.lifecycle.signal
            else f"with exit code {session.lifecycle.exit_code}"
        )
        return RelayError(
            Code.INVALID_SESSION_STATE,
            f"The program has ended during {operation}, {how}",
            f"{call_of('output')} shows its output; {call_of('restart')} runs it again.",
            current_state=session.lifecycle.state.value,
            required_state="paused",
            exit_code=session.lifecycle.exit_code,
            signal=session.lifecycle.signal,
        )
    return RelayError(
        Code.INVALID_SESSION_STATE,
        f"The program resumed during {operation}",
        f"{call_of('session-status')} shows where it is; ask again at the present stop.",
        current_state=session.lifecycle.state.value,
        required_state="paused",
        stop_id=session.stops.stop_id,
    )
