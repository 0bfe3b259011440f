"""`POST /sessions` with `mode`: the launch or attach that follows in the same call."""

from __future__ import annotations

import secrets

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.program import Attach, Launch
from debug_relay.protocol.models.sessions import CreateSession
from debug_relay.protocol.refusals import refusal_of
from debug_relay.protocol.validation.cross_field_rules import OF_MODE
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.frames import Caller, RequestHead
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions.proxy import Session
from debug_relay.supervisor.sessions.registry import Registry


def first_program(params: CreateSession) -> Launch | Attach | None:
    """What is to be started; that fields and mode fit has been seen."""
    if params.mode is None:
        return None
    fields = {name: getattr(params, name) for name in (*OF_MODE[params.mode], "wait")}
    given = {name: value for name, value in fields.items() if value not in (None, [], {})}
    # The id is filled in when there is one.
    kind = Launch if params.mode == "launch" else Attach
    return kind(session_id="", **given)


async def start_program(
    registry: Registry,
    processes: Processes,
    session: Session,
    params: Launch | Attach,
    caller: Caller,
) -> None:
    """The second half of a creating call; when it fails no session is left behind."""
    try:
        await _start_program(registry, processes, session, params, caller)
    except Exception as error:
        if not session.deleting:
            await registry.delete(session, None, force=True)
        if isinstance(error, RelayError) and error.code is Code.SESSION_CRASHED:
            # What else is said of a crash is of a session that is still there.
            left = "No session is left of this call: send it again."
            raise RelayError(error.code, error.message, left) from error
        raise


async def _start_program(
    registry: Registry,
    processes: Processes,
    session: Session,
    params: Launch | Attach,
    caller: Caller,
) -> None:
    params.session_id = session.id
    if isinstance(params, Attach):
        await processes.choose(params, session)
    operation = "launch" if isinstance(params, Launch) else "attach"
    deadline = registry.settings.dap.launch_timeout + params.wait + 5.0
    if isinstance(params, Attach):
        deadline += params.connect_timeout
    head = RequestHead(operation, secrets.token_hex(8), caller, deadline)
    reply, payload = await session.forward(head, encode_json(params), deadline + 2.0)
    session.require_there()
    if not reply.ok:
        raise refusal_of(payload)
