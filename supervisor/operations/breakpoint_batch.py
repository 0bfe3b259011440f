"""A batch of breakpoints of which some entries are malformed: what is wrong with the others.

Lines, conditions and files are judged in the worker, by the session's interpreter. It is asked
about the well-formed entries, so that a caller learns of all that is wrong at once.
"""

from __future__ import annotations

import os
import re
import secrets
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import MOST_IN_A_BATCH, BreakpointSpec, SetBreakpoints
from debug_relay.protocol.operations import JUDGE_BREAKPOINTS
from debug_relay.protocol.refusals import Problem, Problems
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.frames import Caller, RequestHead
from debug_relay.supervisor.sessions.proxy import Session

_SECONDS: Final = 10.0
_ENTRY: Final = re.compile(r"breakpoints\[(\d+)\](.*)", re.DOTALL)


async def judge_sound_entries(session: Session, body: dict[str, Any], told: list[Problem]) -> None:
    """Adds to `told` what the worker says of the entries that are not in it."""
    entries = body.get("breakpoints")
    if not isinstance(entries, list) or len(entries) > MOST_IN_A_BATCH:
        return
    malformed = set()
    for problem in told:
        if found := _ENTRY.fullmatch(problem.field):
            malformed.add(int(found.group(1)))
            problem.code = Code.INVALID_REQUEST
    sound = [index for index in range(len(entries)) if index not in malformed]
    if sound:
        told += await _judged(session, entries, sound)


async def _judged(session: Session, entries: list[Any], sound: list[int]) -> list[Problem]:
    specs = msgspec.convert([entries[index] for index in sound], list[BreakpointSpec])
    asked = SetBreakpoints(session_id=session.id, breakpoints=specs)
    relay = Caller("relay", os.getuid(), ())
    head = RequestHead(JUDGE_BREAKPOINTS, secrets.token_hex(8), relay, _SECONDS)
    try:
        reply, payload = await session.forward(head, encode_json(asked), _SECONDS)
    except RelayError:
        return []  # without its worker: what is malformed is refused all the same
    if not reply.ok:
        return []
    judged = msgspec.json.decode(payload, type=Problems).problems
    for problem in judged:
        found = _ENTRY.fullmatch(problem.field)
        assert found is not None
        problem.field = f"breakpoints[{sound[int(found.group(1))]}]{found.group(2)}"
    return judged
